//! A rank with another method, layout, option, step or plan: an error with both values.

use super::rank::Part;
use super::saboteur::{Deed, Moment, Sabotage};
use super::start::Ranks;
use super::{Scenario, judge};

const ODD: usize = 2;

fn differs(what: &str, usual: Part, odd: Part, words: &'static [&'static str]) -> Scenario {
    Scenario::new(format!("disagree: {what}"), move || {
        let mut ranks = Ranks::new();
        ranks.start_all(|rank| if rank == ODD { odd.clone() } else { usual.clone() })?;
        let ends = ranks.finish()?;
        let name = format!("rank {ODD}");
        judge::all_but(&ends, None, |end| {
            judge::says(end, words)?;
            judge::says(end, &["step 0", "disagrees", &name]).or_else(|reason| match end.rank {
                // Whom it disagrees with is for this one to choose.
                ODD => Ok(()),
                _ => Err(reason),
            })
        })
    })
}

pub fn scenarios() -> Vec<Scenario> {
    let part = Part::of;
    let mut all = vec![
        differs(
            "another method",
            part("topk:density=0.05"),
            part("topk:density=0.06"),
            &["the method is", "0.05", "0.06"],
        ),
        differs(
            "another layout",
            part("topk"),
            Part { elements: 20_001, ..part("topk") },
            &["the layout of buckets and layers is"],
        ),
        differs(
            "another number of buckets",
            part("dense"),
            Part { buckets: 2, ..part("dense") },
            &["the layout of buckets and layers is"],
        ),
        differs(
            "another option",
            part("topk"),
            Part { check_replicas_every: 7, ..part("topk") },
            &["the options is", "checksum every 1,", "checksum every 7,"],
        ),
    ];
    for method in ["dense", "topk", "ar-topk", "ar-topk:leader=var"] {
        let odd = Part { first_step: 7, ..part(method) };
        let words = &["disagrees: the step is", "0", "7"];
        all.push(Scenario::new(format!("disagree: {method} restored at another step"), {
            let (usual, odd) = (part(method), odd);
            move || {
                let mut ranks = Ranks::new();
                ranks.start_all(|rank| if rank == ODD { odd.clone() } else { usual.clone() })?;
                let name = format!("rank {ODD}");
                judge::all_but(&ranks.finish()?, None, |end| {
                    judge::says(end, words)?;
                    judge::says(end, &["step ", if end.rank == ODD { "rank " } else { &name }])
                })
            }
        }));
    }
    let sabotage = Sabotage { step: Some(0), call: 0, moment: Moment::Before, deed: Deed::OtherPlan };
    let odd = Part { sabotage: Some(sabotage), ..part("topk") };
    all.push(differs("another plan", part("topk"), odd, &["disagrees: the plan is", " there and "]));
    all
}
