//! A rank that gives the group up in the midst of a step, while its first bucket is already on its way.

use super::rank::Part;
use super::start::Ranks;
use super::{Scenario, judge};

pub fn scenarios() -> Vec<Scenario> {
    let one = |method: &'static str| {
        Scenario::new(format!("abandon: {method}, rank 2 between two buckets"), move || {
            let mut ranks = Ranks::new();
            let reason = |rank| Some("out of disk space".to_owned()).filter(|_| rank == 2);
            let part = Part { background: true, buckets: 2, ..Part::of(method) };
            ranks.start_all(|rank| Part { abandon: reason(rank), ..part.clone() })?;
            judge::all_but(&ranks.finish()?, None, |end| judge::says(end, &["out of disk space"]))
        })
    };
    ["dense", "topk", "ar-topk", "ar-topk:leader=var", "iwp"].map(one).into()
}
