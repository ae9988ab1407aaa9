//! What there is to choose from: a method, a density, a collective, and the step they make.

use serde::Serialize;
use thinwire::adapt::price::{Price, Way};
use thinwire::method::{Method, split_spec};

use super::setting::Setting;

/// The methods that are planned with.
#[derive(Debug)]
pub struct Methods {
    /// Ways of methods that send a part, those of one method together.
    pub sparse: Vec<Vec<Way>>,
    /// Ways of methods that send everything.
    pub whole: Vec<Vec<Way>>,
    /// Plain `dense`, against which everything is measured.
    pub dense: Vec<Way>,
}

impl Methods {
    /// The methods of these names. A density is no part of them: what would be right is the error.
    pub fn read(specs: &[String]) -> Result<Methods, String> {
        let dense = Way::all("dense").map_err(|error| error.to_string())?;
        let mut methods = Methods { sparse: Vec::new(), whole: Vec::new(), dense };
        for spec in specs {
            let parameters = split_spec(spec).1;
            let mut names =
                parameters.split(',').map(|pair| pair.split('=').next().unwrap_or_default().trim());
            if let Some(name) = names.find(|name| ["density", "theta"].contains(name)) {
                return Err(format!(
                    "{spec}: leave {name} out; the densities of all methods come from --density"
                ));
            }
            let ways = Way::all(spec).map_err(|error| format!("{spec}: {error}"))?;
            let list = if ways[0].is_dense() { &mut methods.whole } else { &mut methods.sparse };
            if !list.contains(&ways) {
                list.push(ways);
            }
        }
        if !methods.whole.contains(&methods.dense) {
            methods.whole.insert(0, methods.dense.clone());
        }
        Ok(methods)
    }

    /// All ways that send a part.
    pub fn all_sparse(&self) -> Vec<Way> {
        self.sparse.concat()
    }
}

/// One way at one density, and the step it makes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offer {
    /// The method, without its density.
    pub method: String,
    /// The part of the gradient that each worker sends; 1 for everything.
    pub density: f64,
    /// The collectives: `ring`, `straight`, `tree + ring`.
    pub collective: &'static str,
    /// The method with its density, as `--method` takes it.
    pub spec: String,
    /// Seconds of the whole step, computing included.
    pub step_seconds: f64,
    /// Of these, seconds on the network.
    pub network_seconds: f64,
    /// Of these, seconds of selecting, encoding, decoding and adding.
    pub work_seconds: f64,
    /// Bytes that the busiest worker sends.
    pub bytes_sent: f64,
    /// How many times shorter than the step with plain `dense`.
    pub speedup: f64,
    /// Whether everything is sent.
    pub whole: bool,
}

impl Offer {
    fn new(setting: &Setting, way: &Way, density: f64, price: &Price, dense_step: f64) -> Offer {
        let density = if way.is_dense() { 1.0 } else { density };
        let step = setting.step(price);
        Offer {
            method: way.method.clone(),
            density,
            collective: way.algorithms(),
            spec: with_density(&way.method, density),
            step_seconds: step,
            network_seconds: price.sync(),
            work_seconds: price.work,
            bytes_sent: price.bytes,
            speedup: dense_step / step,
            whole: way.is_dense(),
        }
    }

    /// Whether it sends the gradient as it is.
    pub fn is_plain_dense(&self) -> bool {
        self.method == "dense"
    }
}

/// The method with its density: `topk:density=0.01`, `fft:theta=0.99`.
fn with_density(method: &str, density: f64) -> String {
    let (name, parameters) = split_spec(method);
    let has = |parameter| Method::find(name).is_ok_and(|method| method.has(parameter));
    let given = match () {
        _ if has("density") => format!("density={density}"),
        // Nine digits hide that 1 - 0.01 is not 0.99 to the last bit.
        _ if has("theta") => format!("theta={}", ((1.0 - density) * 1e9).round() / 1e9),
        _ => return method.to_owned(),
    };
    let parameters = if parameters.is_empty() { given } else { format!("{given},{parameters}") };
    format!("{name}:{parameters}")
}

/// All offers: those that send everything first, then density by density, the fastest first. Of each method and
/// density only the fastest collective, or with `all` every one.
pub fn offers(setting: &Setting, methods: &Methods, densities: &[f64], all: bool) -> Vec<Offer> {
    let dense_step = dense(setting, methods).step_seconds;
    let of = |list: &[Vec<Way>], density: f64| {
        let offer = |(way, price): (&Way, Price)| Offer::new(setting, way, density, &price, dense_step);
        let mut offers: Vec<Offer> = match all {
            true => list.iter().flatten().map(|way| offer((way, setting.price(way, density)))).collect(),
            false => list.iter().filter_map(|ways| setting.best(ways, density)).map(offer).collect(),
        };
        offers.sort_by(|one, other| one.step_seconds.total_cmp(&other.step_seconds));
        offers
    };
    let mut offers = of(&methods.whole, 1.0);
    offers.extend(densities.iter().flat_map(|&density| of(&methods.sparse, density)));
    offers
}

/// Plain `dense` by its best collective.
pub fn dense(setting: &Setting, methods: &Methods) -> Offer {
    let (way, price) = setting.best(&methods.dense, 1.0).expect("ring and tree");
    Offer::new(setting, way, 1.0, &price, setting.step(&price))
}

/// The fastest of some offers; the first on a tie.
pub fn fastest<'a>(offers: impl IntoIterator<Item = &'a Offer>) -> Option<&'a Offer> {
    offers.into_iter().reduce(|best, next| if next.step_seconds < best.step_seconds { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(specs: &[&str]) -> Methods {
        Methods::read(&specs.iter().map(|spec| (*spec).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn densities_stand_where_the_method_has_them() {
        assert_eq!(with_density("topk", 0.01), "topk:density=0.01");
        assert_eq!(with_density("redsync:quantize=true", 0.001), "redsync:density=0.001,quantize=true");
        assert_eq!(with_density("fft", 0.01), "fft:theta=0.99");
        assert_eq!(with_density("dense:values=bf16", 1.0), "dense:values=bf16");
        for spec in ["topk", "redsync:quantize=true", "fft", "iwp", "ar-topk", "dgc", "random-k"] {
            let recipe = thinwire::method::parse(&with_density(spec, 0.033)).unwrap();
            assert!((recipe.density - 0.033).abs() < 1e-8, "{spec}");
        }
    }

    #[test]
    fn dense_is_always_there_and_densities_are_never() {
        let some = methods(&["topk", "topk", "dense:values=bf16"]);
        assert_eq!((some.sparse.len(), some.whole.len()), (1, 2));
        for spec in ["topk:density=0.1", "fft:theta=0.5", "topk:values=f16,density=1%"] {
            let error = Methods::read(&[spec.to_owned()]).unwrap_err();
            assert!(error.contains(spec) && error.contains("--density"), "{error}");
        }
        assert!(Methods::read(&["topq".into()]).unwrap_err().contains("gaussian-k"));
        assert!(Methods::read(&["auto".into()]).is_err());
    }

    #[test]
    fn the_best_are_among_all_and_speed_ups_are_over_dense() {
        let setting = Setting::new(25_557_032, 8, "1gbit,1ms".parse().unwrap());
        let methods = methods(&["dense", "dense:values=bf16", "topk", "ar-topk", "fft"]);
        let (best, all) = (
            offers(&setting, &methods, &[0.1, 0.001], false),
            offers(&setting, &methods, &[0.1, 0.001], true),
        );
        assert_eq!((best.len(), all.len()), (2 + 3 * 2, 4 + (2 + 4 + 2) * 2));
        for offer in &best {
            let same = |other: &&Offer| other.method == offer.method && other.density == offer.density;
            assert_eq!(fastest(all.iter().filter(same)), Some(offer));
            let parts = offer.network_seconds + offer.work_seconds;
            assert!((parts - offer.step_seconds).abs() < 1e-12);
        }
        let dense = best.iter().find(|offer| offer.is_plain_dense()).unwrap();
        assert_eq!(dense.speedup, 1.0);
        assert!(best.iter().filter(|offer| !offer.whole).all(|offer| offer.speedup > 1.5));
    }
}
