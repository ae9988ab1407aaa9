//! Residual and momentum of one bucket.

use super::State;
use crate::kernels::{Cpu, Kernels, Score, Update, Walk};
use crate::{Bucket, Error, Result};

/// What one bucket keeps from step to step: one residual for each element and, with momentum correction, one
/// momentum.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// What was not sent; without feedback only a work space, which holds the last gradient.
    pub residual: Vec<f32>,
    /// The momentum; empty without momentum correction.
    pub momentum: Vec<f32>,
    /// How the gradient enters.
    pub update: Update,
}

impl Memory {
    /// An empty memory of `len` elements.
    pub fn new(len: usize, update: Update) -> Memory {
        let has_momentum = matches!(update, Update::HeavyBall(_) | Update::Nesterov(_));
        // Written and not only asked for zeroed, so that the system hands out the pages now and not in the
        // first step.
        let zeros = |len| {
            let mut zeros = Vec::with_capacity(len);
            zeros.resize(len, 0.0);
            zeros
        };
        Memory { residual: zeros(len), momentum: zeros(if has_momentum { len } else { 0 }), update }
    }

    /// The walk in which a gradient enters this memory.
    pub fn walk<'a>(
        &'a mut self,
        gradient: &'a [f32],
        weights: Option<&'a [f32]>,
        scale: f32,
        score: Score,
    ) -> Walk<'a, [f32]> {
        let momentum = Some(&mut self.momentum[..]).filter(|momentum| !momentum.is_empty());
        Walk { gradient, residual: &mut self.residual, momentum, weights, update: self.update, scale, score }
    }

    /// Forgets what was sent: the residual becomes zero there, and so does the momentum (momentum masking), so
    /// that a coordinate that has just moved is not pushed again by its stale past.
    pub fn forget(&mut self, cpu: &mut Cpu, positions: &[u32]) {
        cpu.clear(positions, &mut self.residual);
        if !self.momentum.is_empty() {
            cpu.clear(positions, &mut self.momentum);
        }
    }

    /// Writes the layers of `bucket` into `state`, by name. Without feedback there is nothing to write.
    pub fn save(&self, bucket: &Bucket, state: &mut State) {
        if self.update == Update::Replace {
            return;
        }
        for layer in bucket.layers() {
            for (vector, into) in
                [(&self.residual, &mut state.residual), (&self.momentum, &mut state.momentum)]
            {
                if let Some(values) = vector.get(layer.range()) {
                    into.insert(layer.name().to_owned(), values.to_vec());
                }
            }
        }
    }

    /// The same, but what was written does not stay here, so that it is never there twice.
    pub fn move_to(mut self, bucket: &Bucket, state: &mut State) {
        if self.update == Update::Replace {
            return;
        }
        for layer in bucket.layers().iter().rev() {
            for (vector, into) in
                [(&mut self.residual, &mut state.residual), (&mut self.momentum, &mut state.momentum)]
            {
                if vector.get(layer.range()).is_some() {
                    into.insert(layer.name().to_owned(), vector.split_off(layer.range().start));
                    vector.shrink_to_fit();
                }
            }
        }
    }

    /// Takes the layers of `bucket` out of `state`. All of them must be there, with their lengths; otherwise
    /// nothing is changed.
    pub fn restore(&mut self, bucket: &Bucket, state: &State) -> Result<()> {
        if self.update == Update::Replace {
            return Ok(());
        }
        // Looked at before anything is touched; a copy to fall back on would double the memory.
        for (kind, own, saved) in
            [("residual", &self.residual, &state.residual), ("momentum", &self.momentum, &state.momentum)]
        {
            for layer in bucket.layers().iter().filter(|layer| own.get(layer.range()).is_some()) {
                let found = saved.get(layer.name());
                if found.is_none_or(|found| found.len() != layer.len()) {
                    return Err(Error::BadState {
                        path: "(in memory)".into(),
                        field: format!("{kind}/{}", layer.name()),
                        found: found.map_or("missing".into(), |found| format!("{} elements", found.len())),
                        expected: format!("{} elements", layer.len()),
                    });
                }
            }
        }
        for (own, saved) in [(&mut self.residual, &state.residual), (&mut self.momentum, &state.momentum)] {
            for layer in bucket.layers() {
                if let Some(values) = own.get_mut(layer.range()) {
                    values.copy_from_slice(&saved[layer.name()]);
                }
            }
        }
        Ok(())
    }
}
