//! A cheap proof that all ranks hold the same bits.

use crate::group::{Algorithm, Gathered, Group};
use crate::kernels::Kernels;
use crate::{Error, Result};

/// Compares a checksum of `vectors` between all ranks.
pub(super) fn compare<'a, K: Kernels>(
    group: &mut dyn Group,
    kernels: &mut K,
    what: &'static str,
    mut vectors: impl Iterator<Item = &'a K::Gradient>,
) -> Result<()> {
    let mut hasher = crc32fast::Hasher::new();
    vectors.try_for_each(|vector| kernels.read(vector, &mut |bytes| hasher.update(bytes)))?;
    let mine = hasher.finalize().to_le_bytes();
    let mut gathered = Gathered::default();
    group.all_gather(&mine, mine.len(), Algorithm::Tree, &mut gathered)?;
    if gathered.iter().all(|other| other == gathered.of(0)) {
        return Ok(());
    }
    Err(Error::ReplicasDiffer { step: group.marked().step, what, values: describe(&gathered) })
}

/// Which ranks hold what, the most common first: `ranks 0, 1, 3 hold 12ab34cd; rank 2 holds 77aa0001`.
fn describe(gathered: &Gathered) -> String {
    let mut camps: Vec<(&[u8], Vec<String>)> = Vec::new();
    for (rank, sum) in gathered.iter().enumerate() {
        match camps.iter_mut().find(|(other, _)| *other == sum) {
            Some((_, ranks)) => ranks.push(rank.to_string()),
            None => camps.push((sum, vec![rank.to_string()])),
        }
    }
    camps.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let sum = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
    let camp = |(bytes, ranks): &(&[u8], Vec<String>)| match &ranks[..] {
        [one] => format!("rank {one} holds {}", sum(bytes)),
        many => format!("ranks {} hold {}", many.join(", "), sum(bytes)),
    };
    camps.iter().map(camp).collect::<Vec<_>>().join("; ")
}
