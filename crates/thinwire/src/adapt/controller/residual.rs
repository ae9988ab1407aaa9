//! Backs off from sparse methods when the residual runs away.
//!
//! A step sends a share of the energy that has gathered: of the gradient and of everything kept from the steps before.
//! While error feedback keeps up, that share settles at a few times the density. A share below a hundredth means that a
//! hundred times as much waits as is sent, so that most of the gradient arrives hundreds of steps late. Then the
//! density goes to the largest that is allowed; should that not help, sparse methods are given up until the training
//! ends. There is no way back, so that the choice can't oscillate.

use super::{ALIKE_DENSITY, Controller, Observation};
use crate::Result;
use crate::adapt::decision::{Decision, Reason, Runaway};

/// The least share of the accumulated energy that a step should send.
const LEAST: f64 = 0.01;
/// So many steps in a row must send less.
const STEPS: usize = 20;

impl Controller {
    /// Takes in the share that a step sent; a decision, if it is time to back off.
    pub(super) fn watch_residual(&mut self, seen: &Observation) -> Result<Option<Decision>> {
        let selects = self.choice.ways.iter().any(|way| !self.ways[*way].is_dense());
        if !selects || seen.warming || self.powerless || seen.gain >= LEAST {
            self.shares.clear();
            return Ok(None);
        }
        self.shares.push(seen.gain);
        if self.shares.len() < STEPS {
            return Ok(None);
        }
        let sent = std::mem::take(&mut self.shares).iter().sum::<f64>() / STEPS as f64;
        let decision = self.back_off(seen.step)?;
        Ok(Some(Decision { residual: Some(Runaway { sent, least: LEAST }), ..decision }))
    }

    /// Raises the density if it can be raised, or else gives sparse methods up if there are others.
    fn back_off(&mut self, step: u64) -> Result<Decision> {
        let largest = self.limits.max_density;
        if self.choice.density * ALIKE_DENSITY < largest {
            self.limits.min_density = largest;
        } else if self.ways.iter().any(|way| way.is_dense()) {
            self.full_only = true;
        } else {
            self.powerless = true;
        }
        let solution = self.best_known()?;
        Ok(self.adopt(step, Reason::Residual, solution, !self.powerless))
    }
}
