//! Quantities of many steps, thinned to as many points as an eye can tell apart.

use super::Recorded;
use crate::event::Step;

/// What a line is drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// The number of the step.
    Steps,
    /// Bytes sent so far.
    Sent,
    /// Seconds of training so far.
    Seconds,
}

/// Where in its training a run was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) step: f64,
    pub(crate) sent: f64,
    pub(crate) elapsed: f64,
}

impl Place {
    /// The coordinate along the axis.
    pub(crate) fn along(&self, against: Against) -> f64 {
        match against {
            Against::Steps => self.step,
            Against::Sent => self.sent,
            Against::Seconds => self.elapsed,
        }
    }
}

/// A few neighbouring steps of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    /// Where they lie, in the middle.
    pub(crate) place: Place,
    /// The mean of the smoothed values.
    pub(crate) mean: f64,
    /// The smallest and the largest raw value.
    pub(crate) low: f64,
    /// The largest.
    pub(crate) high: f64,
}

/// How runs are thinned: all of one report in the same way, so that their bins can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thinning {
    /// Steps of the longest run.
    span: u64,
    /// Bins along these.
    bins: u64,
}

impl Thinning {
    /// Enough bins to see everything, and the fewer the more runs share the page.
    pub(crate) fn of(runs: &[Recorded]) -> Thinning {
        let span = runs.iter().filter_map(|run| run.steps.iter().map(|step| step.step + 1).max()).max();
        let span = span.unwrap_or(1);
        let bins = (6000 / runs.len().max(1) as u64).clamp(60, 300);
        Thinning { span, bins: bins.min(span) }
    }

    /// The quantity in each bin; `None` where no step has a finite one. `smoothing` is the part of the run over
    /// which values are averaged: 0 keeps them.
    pub(crate) fn bins(
        &self,
        run: &Recorded,
        smoothing: f64,
        quantity: impl Fn(&Step) -> Option<f64>,
    ) -> Vec<Option<Bin>> {
        let raw: Vec<f64> = run
            .steps
            .iter()
            .map(|step| quantity(step).filter(|value| value.is_finite()).unwrap_or(f64::NAN))
            .collect();
        let smooth = moving_mean(&raw, (smoothing * raw.len() as f64) as usize);
        let mut sent = sent_before(run);
        let mut sums = vec![
            (Bin { place: Place::default(), mean: 0.0, low: f64::MAX, high: f64::MIN }, 0.0);
            self.bins as usize
        ];
        for (place, step) in run.steps.iter().enumerate() {
            sent += step.sent as f64;
            if !smooth[place].is_finite() || step.step >= self.span {
                continue;
            }
            let (bin, count) =
                &mut sums[(u128::from(step.step) * u128::from(self.bins) / u128::from(self.span)) as usize];
            bin.place.step += step.step as f64;
            bin.place.sent += sent;
            bin.place.elapsed += step.elapsed;
            bin.mean += smooth[place];
            bin.low = bin.low.min(raw[place]);
            bin.high = bin.high.max(raw[place]);
            *count += 1.0;
        }
        sums.into_iter().map(|(bin, count)| (count > 0.0).then(|| scaled(bin, count))).collect()
    }
}

fn scaled(bin: Bin, count: f64) -> Bin {
    let Place { step, sent, elapsed } = bin.place;
    let place = Place { step: step / count, sent: sent / count, elapsed: elapsed / count };
    Bin { place, mean: bin.mean / count, ..bin }
}

/// Bytes sent before the first recorded step: those of the run that was resumed, as the first evaluation tells.
fn sent_before(run: &Recorded) -> f64 {
    let Some(first) = run.evaluations.first() else { return 0.0 };
    let recorded: u64 =
        run.steps.iter().take_while(|step| step.step < first.step).map(|step| step.sent).sum();
    first.sent.saturating_sub(recorded) as f64
}

/// The mean over `width` values around each; what is not a number is left out.
fn moving_mean(values: &[f64], width: usize) -> Vec<f64> {
    if width < 2 {
        return values.to_vec();
    }
    let mut sums = vec![(0.0, 0usize)];
    for value in values {
        let (sum, count) = sums[sums.len() - 1];
        sums.push(if value.is_finite() { (sum + value, count + 1) } else { (sum, count) });
    }
    let mean = |place: usize| {
        // The window is cut evenly at the start, where a lopsided one would shift a falling curve; at the end, where
        // curves are flat, it is not, so that the last point is no single step.
        let before = (width / 2).min(place);
        let after = before.min(values.len() - 1 - place);
        let (from, to) = (sums[place - before], sums[place + after + 1]);
        if to.1 > from.1 { (to.0 - from.0) / (to.1 - from.1) as f64 } else { f64::NAN }
    };
    (0..values.len()).map(mean).collect()
}

/// The same quantity over several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pooled {
    /// Where, as the mean over the seeds.
    pub(crate) place: Place,
    /// The mean over the seeds.
    pub(crate) mean: f64,
    /// The standard deviation over the seeds.
    pub(crate) spread: f64,
}

/// The mean over runs, wherever all of them have a value: a mean over a changing set of seeds would jump.
pub(crate) fn pool(runs: &[Vec<Option<Bin>>]) -> Vec<Option<Pooled>> {
    let length = runs.iter().map(Vec::len).min().unwrap_or(0);
    let pooled = |place: usize| {
        let bins: Option<Vec<Bin>> = runs.iter().map(|bins| bins[place]).collect();
        bins.map(|bins| pooled(&bins.iter().map(|bin| (bin.place, bin.mean)).collect::<Vec<_>>()))
    };
    (0..length).map(pooled).collect()
}

/// The evaluations of all seeds together, at the steps where all were measured.
pub(crate) fn pool_evaluations(runs: &[&Recorded]) -> Vec<Pooled> {
    let at = |run: &Recorded, step: u64| {
        let evaluation = run.evaluations.iter().find(|evaluation| evaluation.step == step)?;
        let place = Place { step: step as f64, sent: evaluation.sent as f64, elapsed: evaluation.elapsed };
        evaluation.value.is_finite().then_some((place, evaluation.value))
    };
    let Some(first) = runs.first() else { return Vec::new() };
    let together = first.evaluations.iter().filter_map(|evaluation| {
        let values: Option<Vec<(Place, f64)>> = runs.iter().map(|run| at(run, evaluation.step)).collect();
        values.map(|values| pooled(&values))
    });
    together.collect()
}

fn pooled(values: &[(Place, f64)]) -> Pooled {
    let part =
        |of: fn(&Place) -> f64| values.iter().map(|(place, _)| of(place)).sum::<f64>() / values.len() as f64;
    let place = Place { step: part(|at| at.step), sent: part(|at| at.sent), elapsed: part(|at| at.elapsed) };
    let (mean, spread) = mean_and_spread(values.iter().map(|(_, value)| *value)).unwrap_or((f64::NAN, None));
    Pooled { place, mean, spread: spread.unwrap_or(0.0) }
}

/// Mean and sample standard deviation (for two values or more) of the finite values.
pub(crate) fn mean_and_spread(values: impl Iterator<Item = f64>) -> Option<(f64, Option<f64>)> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    match values.len() {
        0 => None,
        1 => Some((mean, None)),
        _ => Some((mean, Some((squares / (count - 1.0)).sqrt()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_hundred_thousand_steps_become_a_few_hundred_points() {
        let run = sample::run("topk", 1, 100_000);
        let thinning = Thinning::of(std::slice::from_ref(&run));
        let bins = thinning.bins(&run, 0.0, |step| Some(step.step as f64));
        assert_eq!(bins.len(), 300);
        let bins: Vec<Bin> = bins.into_iter().map(Option::unwrap).collect();
        assert_eq!((bins[0].low, bins[299].high), (0.0, 99_999.0));
        assert!(bins.iter().all(|bin| (bin.mean - bin.place.step).abs() < 1e-6));
        let sent: u64 = run.steps.iter().map(|step| step.sent).sum();
        assert!(bins[299].place.sent <= sent as f64 && bins[299].place.sent > 0.99 * sent as f64);
    }

    #[test]
    fn smoothing_keeps_a_straight_line_and_skips_what_is_no_number() {
        let line: Vec<f64> = (0..50).map(f64::from).collect();
        let smooth = moving_mean(&line, 9);
        assert!(line.iter().zip(&smooth).take(46).all(|(raw, smooth)| (raw - smooth).abs() < 1e-9));
        assert_eq!(smooth[49], 47.0);
        let holed = [1.0, f64::NAN, 3.0, 1.0, 1.0];
        assert_eq!(moving_mean(&holed, 3)[1], 2.0);
        assert!(moving_mean(&[f64::NAN; 5], 3).iter().all(|value| value.is_nan()));
    }

    #[test]
    fn seeds_are_pooled_where_all_have_values() {
        let runs = [sample::run("topk", 1, 50), sample::run("topk", 2, 30)];
        let thinning = Thinning::of(&runs);
        let bins: Vec<_> = runs.iter().map(|run| thinning.bins(run, 0.0, |step| Some(step.loss))).collect();
        let pooled = pool(&bins);
        assert_eq!(pooled.iter().flatten().count(), 30);
        let (first, second) = (runs[0].steps[3].loss, runs[1].steps[3].loss);
        let at = pooled[3].unwrap();
        assert!((at.mean - (first + second) / 2.0).abs() < 1e-12);
        assert!((at.spread - (first - second).abs() / 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn bytes_of_a_resumed_run_continue_where_they_were() {
        let mut run = sample::run("topk", 1, 40);
        let all = Thinning::of(std::slice::from_ref(&run)).bins(&run, 0.0, |step| Some(step.loss));
        run.steps.drain(..7);
        run.evaluations.retain(|evaluation| evaluation.step >= 7);
        let rest = Thinning::of(std::slice::from_ref(&run)).bins(&run, 0.0, |step| Some(step.loss));
        assert_eq!(all[39].unwrap().place.sent, rest[39].unwrap().place.sent);
    }
}
