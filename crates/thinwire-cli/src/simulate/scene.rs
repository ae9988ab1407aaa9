//! Workers, network and gradient, from what was typed.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use thinwire::adapt::simulate::{Cluster, Gains, Scene, Slow, Timetable};
use thinwire::group::Schedule;

use super::Arguments;

/// ResNet-50.
const PARAMETERS: u64 = 25_557_032;
/// A bucket holds no more elements: coordinates are 32 bits.
const LARGEST_BUCKET: u64 = u32::MAX as u64;
/// More buckets are a slip of the pen.
const MOST_BUCKETS: u64 = 1000;

impl Arguments {
    pub(super) fn scene(&self) -> Result<Scene> {
        let parameters = self.params.or(self.model).unwrap_or(PARAMETERS);
        let whole = match self.bucket {
            Some(bytes) => {
                ensure!(bytes >= 4, "--bucket {bytes}: give at least 4 bytes, one parameter");
                (bytes / 4).min(LARGEST_BUCKET)
            }
            None => parameters.min(LARGEST_BUCKET),
        };
        let count = parameters.div_ceil(whole);
        ensure!(
            count <= MOST_BUCKETS,
            "--bucket makes {count} buckets; at most {MOST_BUCKETS} are simulated"
        );
        let of = |number: u64| (parameters - number * whole).min(whole) as usize;
        let scene = Scene {
            cluster: Cluster {
                workers: self.workers,
                compute: self.compute.as_secs_f64(),
                noise: self.noise,
                uneven: self.uneven,
                stragglers: self.stragglers.unwrap_or(Slow::NONE),
                hiccups: self.hiccups.unwrap_or(Slow::NONE),
                seed: self.seed,
            },
            timetable: self.timetable()?,
            buckets: (0..count).map(of).collect(),
            gains: Gains::default(),
            steps: self.steps,
        };
        scene.cluster.check()?;
        Ok(scene)
    }

    fn timetable(&self) -> Result<Timetable> {
        if let Some(network) = self.link {
            return Ok(Timetable::constant(network));
        }
        match self.schedule.as_str() {
            "c1" => Ok(Timetable::c1()),
            "c2" => Ok(Timetable::c2()),
            file => {
                let schedule = Schedule::read(Path::new(file))
                    .context("--schedule: c1, c2 or a file with lines such as `at 30s: 1gbit,50ms`")?;
                Ok(Timetable::from_schedule(schedule).with_context(|| format!("--schedule {file}"))?)
            }
        }
    }
}

/// Reads a share: `10%`, `0.1`. What would be right is the error.
pub fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a share; write such as 10% or 0.1");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}

/// Reads a share and a factor: `2%x3`. What would be right is the error.
pub fn slow(text: &str) -> Result<Slow, String> {
    let wrong = || {
        format!("{text:?} is no share and factor; write such as 2%x3: two in a hundred, three times as long")
    };
    let (part, factor) = text.split_once(['x', '×']).ok_or_else(wrong)?;
    let (share, factor) = (share(part).map_err(|_| wrong())?, factor.trim().parse().map_err(|_| wrong())?);
    if (1.0..=1000.0).contains(&factor) { Ok(Slow { share, factor }) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_factors_as_people_write_them() {
        assert_eq!(
            [share("10%"), share("0.1"), share("0"), share("100 %")],
            [Ok(0.1), Ok(0.1), Ok(0.0), Ok(1.0)]
        );
        for text in ["", "%", "-1%", "110%", "some"] {
            assert!(share(text).unwrap_err().contains("10%"), "{text}");
        }
        assert_eq!(slow("2%x3"), Ok(Slow { share: 0.02, factor: 3.0 }));
        assert_eq!(slow("0.5x1.5"), Ok(Slow { share: 0.5, factor: 1.5 }));
        for text in ["2%", "x3", "2%x0.5", "2%x", "2%xx3"] {
            assert!(slow(text).unwrap_err().contains("2%x3"), "{text}");
        }
    }
}
