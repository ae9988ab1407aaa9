//! How the elements of a bucket are divided among its units, where important ones may send more than others.

/// What one unit may send, would send and has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Elements at the density of the step.
    pub quota: usize,
    /// Elements it would send.
    pub wanted: usize,
    /// Elements it has.
    pub len: usize,
}

/// What all units of a bucket may send and would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Total {
    /// The sum of the quotas, which is also the sum of the shares.
    pub asked: usize,
    /// The sum of what the units would send.
    pub wanted: usize,
}

/// Divides the sum of all quotas by what the units want. Appends the share of each unit to `shares`.
///
/// A share is at least 1 and at most what the unit has. If more is wanted than there is to divide, the elements beyond
/// the first of each unit are cut in proportion; if less, the rest is divided by what the units have left. So shares
/// are the quotas where each unit wants its quota. Integers are rounded along the sum, so that nothing is lost.
pub(crate) fn divide_shares(claims: impl Iterator<Item = Claim> + Clone, shares: &mut Vec<usize>) -> Total {
    let wanted = |claim: &Claim| claim.wanted.clamp(1, claim.len.max(1));
    let room = |claim: &Claim| claim.len.max(1) - wanted(claim);
    let sum = |of: &dyn Fn(&Claim) -> usize| claims.clone().map(|claim| of(&claim)).sum::<usize>();
    let (units, all, asked) = (sum(&|_| 1), sum(&wanted), sum(&|claim| claim.quota));
    let scarce = all >= asked;
    // What there is to divide beyond what every unit has for sure, and the sum of the weights it is divided by.
    let (rest, weights) =
        if scarce { (asked.saturating_sub(units), all - units) } else { (asked - all, sum(&room)) };
    let (mut before, mut passed) = (0, 0);
    for claim in claims.clone() {
        let (sure, weight) = if scarce { (1, wanted(&claim) - 1) } else { (wanted(&claim), room(&claim)) };
        passed += weight;
        let until = (rest as u128 * passed as u128).checked_div(weights as u128).unwrap_or(0) as usize;
        shares.push(sure + until - before);
        before = until;
    }
    Total { asked, wanted: all }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(claims: &[(usize, usize, usize)]) -> Vec<usize> {
        let mut shares = Vec::new();
        let claims = claims.iter().map(|&(quota, wanted, len)| Claim { quota, wanted, len });
        divide_shares(claims, &mut shares);
        shares
    }

    #[test]
    fn who_wants_its_quota_gets_it() {
        assert_eq!(shares(&[(10, 10, 100), (1, 1, 3), (7, 7, 7)]), [10, 1, 7]);
        assert_eq!(shares(&[(1, 1, 1), (1, 1, 0)]), [1, 1]);
        assert_eq!(shares(&[]), [0; 0]);
    }

    #[test]
    fn an_important_unit_gets_more_and_the_others_less() {
        assert_eq!(shares(&[(10, 21, 100), (10, 1, 100), (10, 11, 100)]), [19, 1, 10]);
        // Less is wanted than there is: the rest goes where there is room.
        assert_eq!(shares(&[(10, 2, 100), (10, 10, 10), (10, 3, 100)]), [9, 10, 11]);
    }

    proptest::proptest! {
        #[test]
        fn shares_sum_up_to_the_quotas(
            claims in proptest::collection::vec((0usize..1000, 0usize..2000, 1usize..1000), 1..20),
        ) {
            let claims: Vec<_> = claims.iter().map(|&(quota, wanted, len)| (quota.clamp(1, len), wanted, len)).collect();
            let shares = shares(&claims);
            let asked: usize = claims.iter().map(|(quota, ..)| quota).sum();
            proptest::prop_assert_eq!(shares.iter().sum::<usize>(), asked);
            for (share, (_, _, len)) in shares.iter().zip(&claims) {
                proptest::prop_assert!((1..=*len).contains(share));
            }
        }
    }
}
