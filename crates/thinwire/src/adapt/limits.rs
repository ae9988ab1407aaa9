//! What a user allows the controller to choose.

use crate::adapt::price::Way;
use crate::{Error, Result};

/// The bounds of what a controller may choose, and how it weighs time against gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The methods it may use, as text that [`method::parse`](crate::method::parse) reads.
    pub methods: Vec<String>,
    /// The least density.
    pub min_density: f64,
    /// The largest density of a method that does not send everything.
    pub max_density: f64,
    /// The least share of the accumulated gradient's energy that a step should send; 0: no bound.
    pub target_gain: f64,
    /// The weight of time against gain, where [`Pick::Asf`] picks.
    pub time_weight: f64,
    /// How one density is picked from the Pareto front.
    pub pick: Pick,
    /// What finds the front.
    pub solver: Solver,
}

/// How one point is picked from a Pareto front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// By an achievement scalarising function, as in AR-Topk's code.
    Asf,
    /// The knee, as in AR-Topk's text.
    Knee,
}

/// What finds the Pareto front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// NSGA-II, as in AR-Topk.
    Nsga2,
    /// A grid of 200 densities, which finds the same.
    Grid,
}

impl Limits {
    /// Everything the methods can do, way by way. The order is the same on all ranks.
    pub fn ways(&self) -> Result<Vec<Way>> {
        let mut ways = Vec::new();
        for method in &self.methods {
            ways.extend(Way::all(method)?);
        }
        Ok(ways)
    }

    /// Whether something may be chosen that sends a part of the gradient only.
    pub fn selects(&self) -> Result<bool> {
        Ok(self.ways()?.iter().any(|way| !way.is_dense()))
    }

    /// Refuses what can't be, in the words of the method `spec`.
    pub fn check(&self, spec: &str) -> Result<()> {
        let wrong = |name: &str, value: String, expected: String| {
            Err(Error::BadParameter { method: spec.to_owned(), name: name.into(), value, expected })
        };
        if self.methods.is_empty() {
            let expected = "at least one method, such as dense|topk|ar-topk".into();
            return wrong("methods", String::new(), expected);
        }
        if self.min_density > self.max_density {
            let expected = format!("at most max_density, which is {}", self.max_density);
            return wrong("min_density", self.min_density.to_string(), expected);
        }
        for method in &self.methods {
            let recipe = crate::method::parse(method)?;
            let refusal = match () {
                _ if recipe.momentum != crate::pipeline::Momentum::Off => {
                    "methods without momentum correction"
                }
                _ if recipe.selector.is_some() && !recipe.feedback => "methods that keep what was not sent",
                _ if recipe.clip.is_some() => "methods that do not clip",
                _ if recipe.warmup != crate::memory::Warmup::None => "methods without a warm-up of their own",
                _ => continue,
            };
            return wrong("methods", method.clone(), format!("{refusal}: auto goes from one to another"));
        }
        self.ways().map(drop)
    }
}
