//! Times that all ranks go by alike.

use std::time::Instant;

use crate::group::{Algorithm, Gathered, Group};
use crate::{Error, Result};

/// The mean of all ranks' times, place by place: the same bits on every rank.
///
/// A rank that comes late to a collective finds the others' messages there, and takes less than the network; the others
/// wait for it, and take more. For two ranks the mean is what the network takes, whoever is late; for more it is never
/// less.
pub(super) fn mean(group: &mut dyn Group, mine: &[f64]) -> Result<Vec<f64>> {
    let ranks = group.size() as f64;
    let sums = agree(group, mine, |sum, time| sum + time)?;
    Ok(sums.into_iter().map(|sum| sum / ranks).collect())
}

/// The largest of all ranks' numbers, place by place.
pub(super) fn largest(group: &mut dyn Group, mine: &[f64]) -> Result<Vec<f64>> {
    agree(group, mine, f64::max)
}

fn agree(group: &mut dyn Group, mine: &[f64], both: fn(f64, f64) -> f64) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut gathered = Gathered::default();
    group.all_gather(&bytes, bytes.len(), Algorithm::Tree, &mut gathered)?;
    let step = group.marked().step;
    let mut agreed: Option<Vec<f64>> = None;
    for (rank, theirs) in gathered.iter().enumerate() {
        if theirs.len() != bytes.len() {
            let reason = format!("it has {} bytes of times; expected {}", theirs.len(), bytes.len());
            return Err(Error::BadMessage { rank, step, reason });
        }
        let numbers = theirs.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number));
        agreed = Some(match agreed {
            None => numbers.collect(),
            Some(before) => before.into_iter().zip(numbers).map(|(a, b)| both(a, b)).collect(),
        });
    }
    Ok(agreed.unwrap_or_default())
}

/// The seconds of some work.
pub(super) fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The one in the middle; of two, the lower.
pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Local;

    #[test]
    fn all_ranks_go_by_the_same_numbers() {
        let found = Local::run(3, |mut group| {
            let rank = group.rank() as f64;
            let mine = [1.0 + rank, 5.0 - rank];
            (mean(&mut group, &mine).unwrap(), largest(&mut group, &mine).unwrap())
        });
        assert!(found.iter().all(|both| *both == (vec![2.0, 4.0], vec![3.0, 5.0])), "{found:?}");
    }

    #[test]
    fn the_middle() {
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![2.0, 1.0]), median(vec![])], [2.0, 1.0, 0.0]);
    }
}
