//! What an engine keeps from step to step: saved, put back, and moved into other buckets.

use std::collections::BTreeMap;

use super::{Engine, bucket_lengths, first_method};
use crate::exchange::Lane;
use crate::kernels::{Kernels, Vector};
use crate::memory::{Progress, State};
use crate::synchronizer::agreement::{agree_on, told};
use crate::synchronizer::layout::Layout;
use crate::{Bucket, Error, Result, method};

impl<K: Kernels> Engine<K> {
    /// Takes other buckets for the same layers. What is kept moves layer by layer, so that it is never there twice.
    pub fn relayout(&mut self, layout: &Layout) -> Result<()> {
        let lengths = |buckets: &mut dyn Iterator<Item = &Bucket>| -> BTreeMap<String, usize> {
            let layers = buckets.flat_map(Bucket::layers);
            layers.map(|layer| (layer.name().to_owned(), layer.len())).collect()
        };
        let before = lengths(&mut self.lanes.iter().map(|lane| lane.compressor().bucket()));
        let after = lengths(&mut layout.buckets().iter());
        if before != after {
            return Err(Error::BadSetting {
                name: "the new layout".into(),
                found: format!("{} layers, {} elements", after.len(), layout.len()),
                expected: format!("the {} layers there are, with their lengths", before.len()),
            });
        }
        self.plan = agree_on(self.group.as_mut(), &told(&self.spec, layout, &self.options))?;
        let first = first_method(&method::parse(&self.spec)?);
        let mut state = State::default();
        for lane in self.lanes.drain(..) {
            state.extend(lane.into_compressor().into_state()?);
        }
        for bucket in layout.buckets() {
            let mut lane = Lane::new(&mut self.kernels, method::parse(&first)?, bucket.clone())?;
            lane.compressor_mut().restore(&state)?;
            lane.may_keep();
            for layer in bucket.layers() {
                state.residual.remove(layer.name());
                state.momentum.remove(layer.name());
            }
            self.lanes.push(lane);
        }
        if let Some(adaptation) = &mut self.adaptation {
            adaptation.start(self.group.as_mut(), self.progress, bucket_lengths(layout))?;
            self.unassigned = true;
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        let memories = self.lanes.iter().map(|lane| lane.compressor().memory());
        memories.map(|memory| 4 * (memory.residual.len() + memory.momentum.len())).sum()
    }

    pub fn workspace_bytes(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(Lane::workspace_bytes).sum();
        self.kernels.workspace_bytes() + self.dense_layers.bytes() + lanes
    }

    pub fn save(&self) -> Result<State> {
        let mut whole = State {
            step: self.progress.step,
            epoch: self.progress.epoch,
            rank: self.group.rank() as u64,
            ranks: self.group.size() as u64,
            ..State::default()
        };
        for lane in &self.lanes {
            whole.extend(lane.compressor().save()?);
        }
        whole.method.clone_from(&self.spec);
        Ok(whole)
    }

    /// All of it, or nothing.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        let own = (self.group.rank() as u64, self.group.size() as u64);
        if state.ranks != 0 && (state.rank, state.ranks) != own {
            return Err(Error::BadState {
                path: "(in memory)".into(),
                field: "its rank".into(),
                found: format!("{} of {}", state.rank, state.ranks),
                expected: format!("{} of {}; set State::ranks to 0 to take it all the same", own.0, own.1),
            });
        }
        let before = self.save()?;
        let restored = self.restore_lanes(state);
        match &restored {
            Ok(()) => {
                self.lanes.iter_mut().for_each(Lane::may_keep);
                self.unassigned = self.adaptation.is_some();
                let total_steps = self.options.total_steps;
                self.progress = Progress { step: state.step, epoch: state.epoch, density: None, total_steps };
                self.adaptation.iter_mut().for_each(|adaptation| adaptation.restored(state.step));
            }
            // What was there a moment ago fits.
            Err(_) => self.restore_lanes(&before)?,
        }
        restored
    }

    fn restore_lanes(&mut self, state: &State) -> Result<()> {
        self.lanes.iter_mut().try_for_each(|lane| lane.compressor_mut().restore(state))
    }
}
