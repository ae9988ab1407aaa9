//! The units of a bucket: what is selected from as one vector, and what is sent dense.

use std::ops::Range;

use super::recipe::{Exception, Recipe, Scope, ValuePlan};
use crate::Bucket;
use crate::bucket::Layer;
use crate::kernels::Guess;
use crate::select::{Importance, Select};

/// One vector to select from, with what its selector remembers.
#[derive(Debug)]
pub(super) struct Unit {
    /// The layer's name, or the first layer's in a fused unit.
    pub name: String,
    pub ranges: Vec<Range<usize>>,
    pub len: usize,
    pub selector: Box<dyn Select>,
    pub values: ValuePlan,
    pub guess: Guess,
    /// The density of a step, if that is not less.
    pub least_density: f64,
    /// The weights that are measured, for selectors that look at them.
    pub weight_sample: Vec<Range<usize>>,
}

impl Unit {
    /// `layer` is the first.
    fn new(layer: &Layer, ranges: Vec<Range<usize>>, recipe: &Recipe, selector: &dyn Select) -> Unit {
        let exception = recipe.exception.as_ref().filter(|exception| exception.covers(layer));
        Unit::with(exception, layer, ranges, recipe, selector)
    }

    fn with(
        exception: Option<&Exception>,
        layer: &Layer,
        ranges: Vec<Range<usize>>,
        recipe: &Recipe,
        selector: &dyn Select,
    ) -> Unit {
        let len = ranges.iter().map(Range::len).sum();
        let (selector, values) = match exception {
            Some(exception) => (exception.selector.fresh(), exception.values.clone()),
            None => (selector.fresh(), recipe.values.clone()),
        };
        let weight_sample =
            if selector.needs_weights() { Importance::weight_sample(&ranges) } else { Vec::new() };
        let (name, guess) = (layer.name().to_owned(), Guess::default());
        Unit { name, ranges, len, selector, values, guess, least_density: 0.0, weight_sample }
    }

    /// How many elements to choose at this density of the step.
    pub fn quota(&self, density: f64) -> usize {
        self.selector.quota(self.len, density.max(self.least_density))
    }

    /// Where the unit's coordinates begin in the bucket, and how many there are to choose from.
    pub fn universe(&self) -> Range<usize> {
        self.ranges[0].start..self.ranges[self.ranges.len() - 1].end
    }
}

/// The ranges sent dense, and the units of the rest.
pub(super) fn divide(recipe: &Recipe, bucket: &Bucket) -> (Vec<Range<usize>>, Vec<Unit>) {
    let Some(selector) = recipe.selector.as_deref() else {
        let everything = Some(0..bucket.len()).filter(|range| !range.is_empty());
        return (everything.into_iter().collect(), Vec::new());
    };
    let split = recipe.rules.split(bucket);
    let layer = |&number: &usize| &bucket.layers()[number];
    let mut units = Vec::new();
    match recipe.scope {
        Scope::Layer => {
            let alone = split.compressed.iter().filter(|number| !split.fused.contains(number));
            units.extend(alone.map(layer).map(|l| Unit::new(l, vec![l.range()], recipe, selector)));
            if let Some(first) = split.fused.first().map(layer) {
                // Layers of unlike scale have no mean in common, so their values are never quantised to one.
                let (exception, ranges) = (recipe.exception.as_ref(), joined(split.fused.iter().map(layer)));
                let fused = Unit::with(exception, first, ranges, recipe, selector);
                units.push(Unit { least_density: recipe.fuse_density, ..fused });
            }
        }
        Scope::Bucket => {
            if let Some(first) = split.compressed.first().map(layer) {
                let ranges = joined(split.compressed.iter().map(layer));
                units.push(Unit::new(first, ranges, recipe, selector));
            }
        }
    }
    (split.dense, units)
}

/// The elements of these layers; neighbours share one range.
fn joined<'a>(layers: impl Iterator<Item = &'a Layer>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for range in layers.map(Layer::range) {
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}
