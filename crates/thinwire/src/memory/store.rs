//! Residual and momentum of one bucket.

use super::State;
use crate::bucket::Layer;
use crate::kernels::{Kernels, Run, Score, Update, Vector, Walk};
use crate::{Bucket, Error, Result};

/// What one bucket keeps from step to step: one residual for each element and, with momentum correction, one
/// momentum. Both are in the memory of the device that works on them.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory<V = Vec<f32>> {
    /// What was not sent; without feedback only a work space, which holds the last gradient.
    pub residual: V,
    /// The momentum; empty without momentum correction.
    pub momentum: V,
    /// How the gradient enters.
    pub update: Update,
}

impl<V: Vector> Memory<V> {
    /// An empty memory of `len` elements.
    pub fn new<K: Kernels<Vector = V>>(kernels: &mut K, len: usize, update: Update) -> Result<Memory<V>> {
        let has_momentum = matches!(update, Update::HeavyBall(_) | Update::Nesterov(_));
        let residual = kernels.zeros(len)?;
        let momentum = kernels.zeros(if has_momentum { len } else { 0 })?;
        Ok(Memory { residual, momentum, update })
    }

    /// The walk in which a gradient enters this memory.
    pub fn walk<'a, G: ?Sized>(
        &'a mut self,
        gradient: &'a G,
        weights: Option<&'a G>,
        scale: f32,
        score: Score,
    ) -> Walk<'a, G, V> {
        let momentum = Some(&mut self.momentum).filter(|momentum| !momentum.is_empty());
        Walk { gradient, residual: &mut self.residual, momentum, weights, update: self.update, scale, score }
    }

    /// Forgets what was sent: the residual becomes zero there and, with momentum `masking`, so does the momentum: a
    /// coordinate that has just moved is not pushed again by its stale past.
    pub fn forget<K: Kernels<Vector = V>>(
        &mut self,
        kernels: &mut K,
        positions: Run<'_, K::Positions>,
        masking: bool,
    ) -> Result<()> {
        if masking && !self.momentum.is_empty() {
            kernels.clear(positions.clone(), &mut self.momentum)?;
        }
        kernels.clear(positions, &mut self.residual)
    }

    /// Writes the layers of `bucket` into `state`, by name. Without feedback there is nothing to write.
    pub fn save(&self, bucket: &Bucket, state: &mut State) -> Result<()> {
        if self.update == Update::Replace {
            return Ok(());
        }
        for (vector, into) in [(&self.residual, &mut state.residual), (&self.momentum, &mut state.momentum)] {
            for layer in kept_of(bucket, vector.len()) {
                into.insert(layer.name().to_owned(), vector.read(layer.range())?);
            }
        }
        Ok(())
    }

    /// The same, but what was written does not stay here, so that it is never there twice.
    pub fn move_to(mut self, bucket: &Bucket, state: &mut State) -> Result<()> {
        if self.update == Update::Replace {
            return Ok(());
        }
        for layer in bucket.layers().iter().rev() {
            for (vector, into) in
                [(&mut self.residual, &mut state.residual), (&mut self.momentum, &mut state.momentum)]
            {
                if layer.range().end <= vector.len() {
                    into.insert(layer.name().to_owned(), vector.take_end(layer.range().start)?);
                }
            }
        }
        Ok(())
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
            for layer in kept_of(bucket, own.len()) {
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
            for layer in kept_of(bucket, own.len()) {
                own.write(layer.range().start, &saved[layer.name()])?;
            }
        }
        Ok(())
    }
}

/// The layers that a memory of so many elements holds. Those without elements are kept by none.
fn kept_of(bucket: &Bucket, elements: usize) -> impl Iterator<Item = &Layer> {
    bucket.layers().iter().filter(move |layer| !layer.range().is_empty() && layer.range().end <= elements)
}
