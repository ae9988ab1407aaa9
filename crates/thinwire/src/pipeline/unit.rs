//! The units of a bucket: what is selected from as one vector, and what is sent dense.

use std::ops::Range;

use super::recipe::{Recipe, Scope, ValuePlan};
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
    /// The weights that are measured, for selectors that look at them.
    pub weight_sample: Vec<Range<usize>>,
}

impl Unit {
    /// `layer` is the first.
    fn new(layer: &Layer, ranges: Vec<Range<usize>>, recipe: &Recipe, selector: &dyn Select) -> Unit {
        let len = ranges.iter().map(Range::len).sum();
        let exception = recipe.exception.as_ref().filter(|exception| exception.covers(layer));
        let (selector, values) = match exception {
            Some(exception) => (exception.selector.fresh(), exception.values.clone()),
            None => (selector.fresh(), recipe.values.clone()),
        };
        let weight_sample =
            if selector.needs_weights() { Importance::weight_sample(&ranges) } else { Vec::new() };
        let (name, guess) = (layer.name().to_owned(), Guess::default());
        Unit { name, ranges, len, selector, values, guess, weight_sample }
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
        Scope::Layer => units.extend(
            split.compressed.iter().map(layer).map(|l| Unit::new(l, vec![l.range()], recipe, selector)),
        ),
        Scope::Bucket => {
            let mut ranges: Vec<Range<usize>> = Vec::new();
            for range in split.compressed.iter().map(layer).map(|l| l.range()) {
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
            if let Some(first) = split.compressed.first().map(layer) {
                units.push(Unit::new(first, ranges, recipe, selector));
            }
        }
    }
    (split.dense, units)
}
