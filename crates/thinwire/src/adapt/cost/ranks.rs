//! How many ranks there are, and how many rounds of doubling reach them all.

/// The ranks of a group, as the formulas see them: their number, and the rounds it takes to reach all of them when
/// every round doubles how many have been reached. The papers write log₂ N for these rounds.
///
/// That is the number of rounds only where N is a power of two. [`Ranks::new`] counts the rounds there really are,
/// log₂ N rounded up; [`Ranks::continuous`] is the papers' form. All formulas take either.
///
/// ```
/// use thinwire::adapt::cost::Ranks;
///
/// assert_eq!(Ranks::new(8), Ranks::continuous(8));
/// assert_eq!(Ranks::new(6).rounds(), 3.0);
/// assert_eq!(Ranks::continuous(6).rounds(), 6f64.log2());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranks {
    count: usize,
    rounds: f64,
}

impl Ranks {
    /// So many ranks, with whole rounds. No rank counts as one: nothing travels in either case.
    pub fn new(count: usize) -> Ranks {
        let count = count.max(1);
        Ranks { count, rounds: f64::from(usize::BITS - (count - 1).leading_zeros()) }
    }

    /// So many ranks, with log₂ N rounds as in the papers and in AR-Topk's code. For comparing with them: between
    /// powers of two it promises less time than any algorithm takes.
    pub fn continuous(count: usize) -> Ranks {
        let count = count.max(1);
        Ranks { count, rounds: (count as f64).log2() }
    }

    /// How many there are: the papers' N.
    pub fn count(self) -> usize {
        self.count
    }

    /// Rounds until all are reached: the papers' log₂ N.
    pub fn rounds(self) -> f64 {
        self.rounds
    }

    /// All but one: N - 1.
    pub(super) fn others(self) -> f64 {
        (self.count - 1) as f64
    }

    /// The share that does not stay where it is when something is cut into N parts: (N-1)/N.
    pub(super) fn moved(self) -> f64 {
        self.others() / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_whole_and_reach_everybody() {
        let found: Vec<f64> = (0..=9).map(|count| Ranks::new(count).rounds()).collect();
        assert_eq!(found, [0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 4.0]);
        assert_eq!(Ranks::new(usize::MAX).rounds(), f64::from(usize::BITS));
    }

    #[test]
    fn both_forms_agree_at_powers_of_two_only() {
        for count in 1..=1024 {
            let (whole, continuous) = (Ranks::new(count).rounds(), Ranks::continuous(count).rounds());
            assert_eq!(whole == continuous, count.is_power_of_two(), "{count}");
            assert!(whole >= continuous && whole < continuous + 1.0, "{count}");
        }
        assert_eq!(Ranks::continuous(0), Ranks::new(1));
    }
}
