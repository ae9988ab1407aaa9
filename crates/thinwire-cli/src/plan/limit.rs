//! The link speed above which compression stops paying.

use thinwire::adapt::price::Way;

use super::setting::Setting;

/// Bits a second between which is looked: from a modem to a thousand times the fastest link there is.
const SLOWEST: f64 = 1e3;
const FASTEST: f64 = 1e15;
/// Speeds that are tried in each decade before the place is narrowed down.
const TRIES: i32 = 20;

/// Up to which link speed something holds, at one latency.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "holds", content = "bits_per_second")]
pub enum Limit {
    /// At no speed.
    Never,
    /// Up to so many bits a second.
    Below(f64),
    /// At every speed, because latency or work decides and not the bandwidth.
    Always,
}

impl Limit {
    /// The highest speed at which `holds` is true of the setting. What lies below is taken to hold as well.
    fn highest(setting: &Setting, holds: impl Fn(&Setting) -> bool) -> Limit {
        let holds = |bits: f64| holds(&setting.at_rate(bits));
        if holds(FASTEST) {
            return Limit::Always;
        }
        // From above: where it holds in several stretches, the last one counts.
        let decades = (FASTEST / SLOWEST).log10().round() as i32;
        let rate = |step: i32| FASTEST / 10f64.powf(f64::from(step) / f64::from(TRIES));
        let Some(step) = (1..=decades * TRIES).find(|&step| holds(rate(step))) else { return Limit::Never };
        let (mut low, mut high) = (rate(step), rate(step - 1));
        while high / low > 1.0 + 1e-9 {
            let middle = (low * high).sqrt();
            *(if holds(middle) { &mut low } else { &mut high }) = middle;
        }
        Limit::Below(low)
    }

    /// Up to which speed the fastest of `ways` at a density beats the fastest way of `dense`, and by what part of the
    /// whole step at least: 0 for any gain.
    pub fn of_paying(setting: &Setting, ways: &[Way], dense: &[Way], density: f64, gain: f64) -> Limit {
        Limit::highest(setting, |setting| {
            let step = |ways, density| setting.best(ways, density).map(|(_, price)| setting.step(&price));
            match (step(ways, density), step(dense, 1.0)) {
                (Some(compressed), Some(dense)) => compressed < (1.0 - gain) * dense,
                _ => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(methods: &[&str]) -> Vec<Way> {
        methods.iter().flat_map(|method| Way::all(method).unwrap()).collect()
    }

    fn seconds(setting: &Setting, ways: &[Way], density: f64) -> f64 {
        setting.step(&setting.best(ways, density).unwrap().1)
    }

    #[test]
    fn it_pays_just_below_and_not_just_above() {
        let (sparse, dense) = (ways(&["topk", "ar-topk", "fft"]), ways(&["dense"]));
        let mut found = 0;
        for workers in [2, 4, 8, 64] {
            for link in ["1gbit,10us", "1gbit,1ms", "1gbit"] {
                for density in [0.1, 0.01, 0.001] {
                    for gain in [0.0, 0.1] {
                        let mut setting = Setting::new(86_567_656, workers, link.parse().unwrap());
                        setting.compute = 0.05;
                        match Limit::of_paying(&setting, &sparse, &dense, density, gain) {
                            Limit::Below(bits) => {
                                let pays = |factor: f64| {
                                    let setting = setting.at_rate(factor * bits);
                                    seconds(&setting, &sparse, density)
                                        < (1.0 - gain) * seconds(&setting, &dense, 1.0)
                                };
                                assert!(pays(1.0) && !pays(1.0 + 1e-6), "{workers} {link} {density}: {bits}");
                                found += 1;
                            }
                            Limit::Always => assert!(link.contains("ms"), "{workers} {link} {density}"),
                            Limit::Never => panic!("{workers} {link} {density}"),
                        }
                    }
                }
            }
        }
        assert!(found > 50);
    }

    #[test]
    fn far_away_it_always_pays_and_with_everything_sent_it_never_does() {
        let dense = ways(&["dense"]);
        let setting = Setting::new(1_000_000, 8, "1gbit,50ms".parse().unwrap());
        // One hop against seven.
        assert_eq!(Limit::of_paying(&setting, &ways(&["topk"]), &dense, 0.01, 0.0), Limit::Always);
        let near = Setting::new(1_000_000, 8, "1gbit".parse().unwrap());
        assert_eq!(Limit::of_paying(&near, &ways(&["topk"]), &dense, 1.0, 0.0), Limit::Never);
        assert_eq!(Limit::of_paying(&near, &[], &dense, 0.01, 0.0), Limit::Never);
    }

    #[test]
    fn a_gain_that_counts_ends_sooner_than_any_gain() {
        let (sparse, dense) = (ways(&["topk"]), ways(&["dense"]));
        let mut setting = Setting::new(25_557_032, 8, "1gbit,100us".parse().unwrap());
        setting.compute = 0.12;
        let limit = |gain| match Limit::of_paying(&setting, &sparse, &dense, 0.01, gain) {
            Limit::Below(bits) => bits,
            other => panic!("{other:?}"),
        };
        assert!(limit(0.1) < 0.9 * limit(0.0), "{} {}", limit(0.1), limit(0.0));
    }
}
