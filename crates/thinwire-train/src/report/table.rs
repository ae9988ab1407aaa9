//! The comparison of runs as data: one row for each kind of run, seeds taken together.

use serde::Serialize;

use super::Recorded;
use super::group::{Group, groups};
use super::series::mean_and_spread;
use crate::event::{Evaluation, Measure, Run};

/// One row of the comparison. Means are over the runs of the row; `None` where nothing was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The short name.
    pub name: String,
    /// The method with its parameters.
    pub method: String,
    /// How many runs.
    pub runs: usize,
    /// How many different seeds.
    pub seeds: usize,
    /// How many of the runs stopped before their end.
    pub interrupted: usize,
    /// What `value_mean` is.
    pub measure: Measure,
    /// Accuracy from 0 to 1, or perplexity, at the end.
    pub value_mean: Option<f64>,
    /// Its standard deviation over the runs; `None` for fewer than two.
    pub value_spread: Option<f64>,
    /// The best value seen.
    pub best_mean: Option<f64>,
    /// Bytes worker 0 sent in all steps.
    pub sent_mean: f64,
    /// Bytes a dense ring would have sent.
    pub dense_mean: f64,
    /// Dense bytes over sent bytes, everything counted; `None` if nothing was sent.
    pub wire_ratio: Option<f64>,
    /// The same after the warm-up of the density.
    pub wire_ratio_settled: Option<f64>,
    /// The wire ratio of the layers that are compressed, after the warm-up.
    pub wire_ratio_compressed: Option<f64>,
    /// The same for one worker's message, before a collective passes it on.
    pub message_ratio_compressed: Option<f64>,
    /// The same without coordinates and headers.
    pub value_ratio: Option<f64>,
    /// The part of a step that is neither forward, backward, optimiser nor bytes under way.
    pub overhead: Option<f64>,
    /// Mean of the achieved over the asked k, after the warm-up.
    pub kept_over_asked: Option<f64>,
    /// Seconds of one step.
    pub seconds_per_step: Option<f64>,
    /// Its standard deviation over the runs; `None` for fewer than two.
    pub seconds_per_step_spread: Option<f64>,
    /// Seconds per step of dense training over those of this row: above 1 is faster. `None` without a dense run of
    /// the same model, data, workers, batch and link.
    pub speedup_against_dense: Option<f64>,
    /// The part of the exchange that lay beside the backward pass, from 0 to 1.
    pub hidden: Option<f64>,
    /// Seconds of training in all.
    pub seconds: f64,
    /// The value to be reached, if one was asked for.
    pub target: Option<f64>,
    /// How many of the runs reached it.
    pub reached: usize,
    /// Seconds of training until the first evaluation at or beyond the target; only if all runs reached it.
    pub seconds_to_target: Option<f64>,
    /// Bytes sent until then.
    pub sent_to_target: Option<f64>,
}

/// Compares runs, in the order in which they are given. `target` is an accuracy from 0 to 1, or a perplexity.
pub fn compare(runs: &[Recorded], target: Option<f64>) -> Vec<Comparison> {
    compare_groups(&groups(runs), target)
}

pub(crate) fn compare_groups(groups: &[Group<'_>], target: Option<f64>) -> Vec<Comparison> {
    let rows = groups
        .iter()
        .map(|group| Comparison { speedup_against_dense: speedup(group, groups), ..row(group, target) });
    rows.collect()
}

fn row(group: &Group<'_>, target: Option<f64>) -> Comparison {
    let runs = &group.runs;
    let mean = |of: &dyn Fn(&Recorded) -> Option<f64>| {
        mean_and_spread(runs.iter().filter_map(|run| of(run))).map(|(mean, _)| mean)
    };
    // A run that diverged has no value: the mean over the others would hide it.
    let values: Option<Vec<f64>> =
        runs.iter().map(|run| run.value().filter(|value| value.is_finite())).collect();
    let values = values.and_then(|values| mean_and_spread(values.into_iter()));
    let steps = mean_and_spread(runs.iter().filter_map(|run| run.times()).map(|times| times.total));
    let sent_mean = mean(&|run| Some(run.sent() as f64)).unwrap_or(0.0);
    let dense_mean = mean(&|run| Some(run.dense_bytes() as f64)).unwrap_or(0.0);
    let arrivals: Vec<&Evaluation> = runs.iter().filter_map(|run| arrival(run, target?)).collect();
    let all = arrivals.len() == runs.len();
    let until = |of: fn(&Evaluation) -> f64| {
        let mean = mean_and_spread(arrivals.iter().map(|evaluation| of(evaluation)));
        mean.filter(|_| all).map(|(mean, _)| mean)
    };
    Comparison {
        name: group.label.clone(),
        method: group.settings().method.clone(),
        runs: runs.len(),
        seeds: group.seeds(),
        interrupted: runs.iter().filter(|run| run.interrupted()).count(),
        measure: group.measure(),
        value_mean: values.map(|(mean, _)| mean),
        value_spread: values.and_then(|(_, spread)| spread),
        best_mean: mean(&best),
        sent_mean,
        dense_mean,
        wire_ratio: (sent_mean > 0.0).then(|| dense_mean / sent_mean),
        wire_ratio_settled: mean(&|run| run.end.as_ref()?.wire_ratio_settled),
        wire_ratio_compressed: mean(&|run| run.end.as_ref()?.wire_ratio_compressed),
        message_ratio_compressed: mean(&|run| run.end.as_ref()?.message_ratio_compressed),
        value_ratio: mean(&|run| run.end.as_ref()?.value_ratio),
        overhead: mean(&|run| run.times()?.overhead()),
        kept_over_asked: mean(&|run| run.end.as_ref()?.kept_over_asked),
        seconds_per_step: steps.map(|(mean, _)| mean),
        seconds_per_step_spread: steps.and_then(|(_, spread)| spread),
        speedup_against_dense: None,
        hidden: mean(&Recorded::hidden),
        seconds: mean(&|run| Some(run.seconds())).unwrap_or(0.0),
        target,
        reached: arrivals.len(),
        seconds_to_target: until(|evaluation| evaluation.elapsed),
        sent_to_target: until(|evaluation| evaluation.sent as f64),
    }
}

/// Whether `value` is as good as `target` or better.
fn reaches(measure: Measure, value: f64, target: f64) -> bool {
    match measure {
        Measure::Accuracy => value >= target,
        Measure::Perplexity => value <= target,
    }
}

fn arrival(run: &Recorded, target: f64) -> Option<&Evaluation> {
    run.evaluations.iter().find(|evaluation| reaches(run.run.measure, evaluation.value, target))
}

fn best(run: &Recorded) -> Option<f64> {
    let values = run.evaluations.iter().map(|evaluation| evaluation.value).filter(|value| value.is_finite());
    let of_evaluations = match run.run.measure {
        Measure::Accuracy => values.reduce(f64::max),
        Measure::Perplexity => values.reduce(f64::min),
    };
    run.end.as_ref().map(|end| end.best).filter(|best| best.is_finite()).or(of_evaluations)
}

/// Dense seconds per step over those of the group, against dense runs of the same circumstances.
fn speedup(group: &Group<'_>, groups: &[Group<'_>]) -> Option<f64> {
    let circumstances = |run: &Run| {
        (
            run.model.clone(),
            run.data.clone(),
            run.workers,
            run.batch,
            run.threads,
            run.group.clone(),
            run.link.clone(),
        )
    };
    let seconds = |group: &Group<'_>| {
        let totals = group.runs.iter().filter_map(|run| run.times()).map(|times| times.total);
        mean_and_spread(totals).map(|(mean, _)| mean).filter(|mean| *mean > 0.0)
    };
    let comparable = |other: &&Group<'_>| {
        other.is_dense() && circumstances(other.settings()) == circumstances(group.settings())
    };
    // Of several dense variants, the plain one is the measure.
    let plain = groups.iter().filter(comparable).find(|other| other.settings().method == "dense");
    let dense = plain.or_else(|| groups.iter().find(comparable))?;
    Some(seconds(dense)? / seconds(group)?)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn seeds_make_one_row_with_their_spread() {
        let mut runs =
            vec![sample::run("dense", 1, 30), sample::run("topk", 1, 30), sample::run("topk", 2, 30)];
        for (run, (value, total)) in runs.iter_mut().zip([(0.9, 0.4), (0.8, 0.1), (0.9, 0.3)]) {
            let end = run.end.as_mut().unwrap();
            (end.value, end.times.total) = (value, total);
        }
        let rows = compare(&runs, None);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[1].runs, rows[1].seeds, rows[1].interrupted), (2, 2, 0));
        assert!((rows[1].value_mean.unwrap() - 0.85).abs() < 1e-12);
        assert!((rows[1].value_spread.unwrap() - 0.005f64.sqrt()).abs() < 1e-12);
        assert_eq!((rows[0].value_spread, rows[0].speedup_against_dense), (None, Some(1.0)));
        assert!((rows[1].speedup_against_dense.unwrap() - 2.0).abs() < 1e-12);
        assert!(rows[1].wire_ratio.unwrap() > 10.0 * rows[0].wire_ratio.unwrap());
        assert!(serde_json::to_string(&rows).unwrap().contains("\"seconds_per_step\""));
    }

    #[test]
    fn speed_is_compared_only_with_dense_runs_of_the_same_circumstances() {
        let mut runs = [sample::run("dense", 1, 5), sample::run("topk", 1, 5)];
        runs[0].run.link = Some("1gbit".into());
        assert_eq!(compare(&runs, None)[1].speedup_against_dense, None);
    }

    #[test]
    fn a_target_counts_only_when_all_seeds_reach_it() {
        let evaluation = |value, elapsed, sent| Evaluation { value, elapsed, sent, ..Evaluation::default() };
        let mut runs = [sample::run("topk", 1, 5), sample::run("topk", 2, 5)];
        runs[0].evaluations =
            vec![evaluation(0.5, 1.0, 10), evaluation(0.8, 2.0, 20), evaluation(0.7, 3.0, 30)];
        runs[1].evaluations = vec![evaluation(0.5, 1.0, 10), evaluation(0.7, 4.0, 40)];
        let row = &compare(&runs, Some(0.7))[0];
        assert_eq!((row.reached, row.seconds_to_target, row.sent_to_target), (2, Some(3.0), Some(30.0)));
        let row = &compare(&runs, Some(0.75))[0];
        assert_eq!((row.reached, row.seconds_to_target), (1, None));
        for run in &mut runs {
            run.run.measure = Measure::Perplexity;
        }
        let row = &compare(&runs, Some(0.5))[0];
        assert_eq!((row.reached, row.seconds_to_target), (2, Some(1.0)));
    }

    #[test]
    fn a_diverged_seed_leaves_no_mean() {
        let mut runs = [sample::run("topk", 1, 5), sample::run("topk", 2, 5)];
        runs[1].end.as_mut().unwrap().value = f64::NAN;
        assert_eq!(compare(&runs, None)[0].value_mean, None);
    }
}
