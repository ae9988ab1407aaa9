//! One way for a bucket to travel, and what it lays on the network.

use super::Collective;
use crate::codec::ValueForm;
use crate::exchange::Leaders;
use crate::group::Algorithm;
use crate::pipeline::{Exchange, Recipe, ValuePlan};
use crate::transform::TransformKind;
use crate::{Error, Result, method};

/// A method, and the algorithms of its collectives: one of the things a controller may choose for a bucket.
///
/// ```
/// use thinwire::adapt::price::Way;
///
/// let names: Vec<String> = Way::all("topk")?.iter().map(Way::to_string).collect();
/// assert_eq!(names, ["topk, ring", "topk, straight"]);
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// The method as text that [`method::parse`] reads, with a density that does not count.
    pub method: String,
    /// The algorithm of sums.
    pub sum: Algorithm,
    /// The algorithm of broadcasts and gathers.
    pub spread: Algorithm,
    form: Form,
}

/// What a step of a method is made of, as far as the network sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// A sum of everything in words of so many bytes, and a word from each rank whether it took part.
    Dense { width: f64 },
    /// A compressed sum of everything, in so many bits a value.
    Quantized { bits: f64 },
    /// Everybody's own coordinates, with values of so many bits, out of a part of the elements.
    Gathered { value_bits: f64, universe: f64 },
    /// The leaders' coordinates, one leader after the other, and a sum of values there.
    Agreed { width: f64, leaders: usize, norms: bool },
}

/// A collective that a step needs, and the bytes of its vector or message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// Which.
    pub collective: Collective,
    /// Of how many bytes.
    pub bytes: f64,
}

impl Way {
    /// All ways a method can take.
    pub fn all(spec: &str) -> Result<Vec<Way>> {
        let recipe = method::parse(spec)?;
        let form = form_of(&recipe)?;
        use Algorithm::{Ring, Tree};
        let algorithms: &[(Algorithm, Algorithm)] = match form {
            Form::Dense { .. } => &[(Ring, Tree), (Tree, Tree)],
            Form::Quantized { .. } => &[(Ring, Tree)],
            Form::Gathered { .. } => &[(Ring, Ring), (Tree, Tree)],
            Form::Agreed { leaders: 0, .. } => &[(Ring, Tree), (Tree, Tree)],
            Form::Agreed { .. } => &[(Ring, Tree), (Ring, Ring), (Tree, Tree), (Tree, Ring)],
        };
        let way = |&(sum, spread): &_| Way { method: recipe.spec.clone(), sum, spread, form };
        Ok(algorithms.iter().map(way).collect())
    }

    /// The way a method takes where all its collectives have one algorithm, as
    /// [`Options::algorithm`](crate::synchronizer::Options::algorithm) says.
    ///
    /// ```
    /// use thinwire::adapt::price::Way;
    /// use thinwire::group::Algorithm;
    ///
    /// assert_eq!(Way::by("ar-topk", Algorithm::Ring)?.to_string(), "ar-topk, chain + ring");
    /// assert_eq!(Way::by("dense", Algorithm::Ring)?.to_string(), "dense, ring");
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn by(spec: &str, how: Algorithm) -> Result<Way> {
        let mut ways = Way::all(spec)?;
        let both = ways.iter().position(|way| way.sum == how && way.spread == how);
        // What ranks say about a dense sum goes straight, whatever the sum does.
        let place = both.or_else(|| ways.iter().position(|way| way.sum == how)).unwrap_or(0);
        Ok(ways.swap_remove(place))
    }

    /// Whether everything is sent, so that there is no density to choose.
    pub fn is_dense(&self) -> bool {
        matches!(self.form, Form::Dense { .. } | Form::Quantized { .. })
    }

    /// Whether everything is sent in a few bits, with error feedback.
    pub fn is_quantized(&self) -> bool {
        matches!(self.form, Form::Quantized { .. })
    }

    /// Bits of each value, where everything is sent: the more, the less is rounded.
    pub fn bits(&self) -> Option<f64> {
        match self.form {
            Form::Dense { width } => Some(8.0 * width),
            Form::Quantized { bits } => Some(bits),
            Form::Gathered { .. } | Form::Agreed { .. } => None,
        }
    }

    /// Whether everybody sends coordinates of its own.
    pub fn is_gathered(&self) -> bool {
        matches!(self.form, Form::Gathered { .. })
    }

    /// The values a rank sends of so many elements.
    pub fn kept(&self, elements: f64, density: f64) -> f64 {
        if self.is_dense() { elements } else { (elements * density).max(1.0) }
    }

    /// The collectives of a bucket, one after the other; behind all buckets there may be a [verdict](Way::verdict).
    ///
    /// ```
    /// use thinwire::adapt::price::{Collective, Way};
    ///
    /// let way = &Way::all("ar-topk")?[0];
    /// let legs = way.legs(1e6, 0.01);
    /// assert_eq!(legs[0].collective, Collective::TreeCast);
    /// assert_eq!(legs[1].collective, Collective::RingSum);
    /// assert!((legs[0].bytes / 1e4 * 8.0 - 8.2).abs() < 0.1); // bits for a coordinate
    /// assert_eq!(legs[1].bytes, 4.0 * 10_001.0);
    /// # Ok::<(), thinwire::Error>(())
    /// ```
    pub fn legs(&self, elements: f64, density: f64) -> Vec<Leg> {
        let kept = self.kept(elements, density);
        let (sum, cast) = (Collective::sum(self.sum), Collective::cast(self.spread));
        match self.form {
            Form::Dense { width } => vec![Leg { collective: sum, bytes: width * elements }],
            Form::Quantized { bits } => {
                vec![Leg { collective: Collective::StraightSum, bytes: bits / 8.0 * elements }]
            }
            Form::Gathered { value_bits, universe } => {
                let coordinates = kept * universe;
                let bits = kept * value_bits + coordinates * index_bits(density);
                vec![Leg { collective: Collective::gather(self.spread), bytes: HEADER + bits / 8.0 }]
            }
            Form::Agreed { width, leaders, norms } => {
                let mut legs = Vec::new();
                if norms {
                    legs.push(Leg { collective: Collective::StraightGather, bytes: 8.0 });
                }
                let mask = HEADER + kept * index_bits(density) / 8.0;
                legs.extend((0..leaders).map(|_| Leg { collective: cast, bytes: mask }));
                // Leaders that choose independently of each other overlap by chance alone.
                let union = match leaders {
                    0 | 1 => kept,
                    many => elements * (1.0 - (1.0 - density).powi(many as i32)),
                };
                legs.push(Leg { collective: sum, bytes: width * (union + 1.0) });
                legs
            }
        }
    }

    /// What comes behind all buckets of a step, once, if one of them goes this way: everybody tells whether it took part.
    pub fn verdict(&self) -> Option<Leg> {
        let unsaid = matches!(self.form, Form::Dense { .. });
        unsaid.then_some(Leg { collective: Collective::StraightGather, bytes: 0.0 })
    }

    /// How the algorithms are called in a table.
    pub fn algorithms(&self) -> &'static str {
        use Algorithm::{Ring, Tree};
        match (self.form, self.sum, self.spread) {
            (Form::Quantized { .. }, ..) => "straight",
            (Form::Gathered { .. }, _, Ring) => "ring",
            (Form::Gathered { .. }, _, Tree) => "straight",
            (Form::Agreed { leaders: 1.., .. }, Ring, Ring) => "chain + ring",
            (Form::Agreed { leaders: 1.., .. }, Ring, Tree) => "tree + ring",
            (Form::Agreed { leaders: 1.., .. }, Tree, Ring) => "chain + tree",
            (Form::Agreed { leaders: 1.., .. }, Tree, Tree) => "tree + tree",
            (_, Ring, _) => "ring",
            (_, Tree, _) => "tree",
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.method, self.algorithms())
    }
}

/// Bytes of a frame around its coordinates and values.
const HEADER: f64 = 48.0;

/// Bits for one coordinate at a density: what the codec's shortest form takes, within a few per cent. The entropy of
/// a random choice, with what Rice codes add to it, or a bitmap.
///
/// ```
/// use thinwire::adapt::price::index_bits;
/// assert!((index_bits(0.001) - 11.49).abs() < 0.1); // measured: 11.49
/// assert!((index_bits(0.01) - 8.11).abs() < 0.1); // measured: 8.11
/// ```
pub fn index_bits(density: f64) -> f64 {
    let p = density.clamp(1e-9, 1.0);
    let rest = 1.0 - p;
    let entropy = if rest > 0.0 { -(p * p.log2() + rest * rest.log2()) / p } else { 0.0 };
    (1.006 * entropy).min(1.0 / p).min(32.0)
}

fn form_of(recipe: &Recipe) -> Result<Form> {
    let width = match recipe.values.dense_form().precision() {
        Some(precision) => precision.width() as f64,
        None => 4.0,
    };
    let value_bits = match &recipe.values {
        ValuePlan::Fixed(ValueForm::Range(range)) => f64::from(range.bits()),
        ValuePlan::Fixed(ValueForm::Quantized(quantizer)) => quantizer.bits_per_value(),
        ValuePlan::Fixed(form) => 8.0 * form.precision().map_or(0.0, |precision| precision.width() as f64),
        ValuePlan::Covering { bits, .. } => f64::from(*bits),
        ValuePlan::SameSign => 0.0,
    };
    match recipe.exchange {
        Exchange::Dense => Ok(Form::Dense { width }),
        Exchange::Quantized(quantizer) => Ok(Form::Quantized { bits: quantizer.bits_per_value() }),
        Exchange::Gathered => {
            // A bin of a real transform is two values.
            let universe = if recipe.transform == TransformKind::Identity { 1.0 } else { 0.5 };
            Ok(Form::Gathered { value_bits, universe })
        }
        Exchange::Agreed(leaders) => Ok(match leaders {
            Leaders::RoundRobin => Form::Agreed { width, leaders: 1, norms: false },
            Leaders::LargestNorm => Form::Agreed { width, leaders: 1, norms: true },
            Leaders::Random { count, .. } => Form::Agreed { width, leaders: count, norms: false },
            Leaders::Nobody => Form::Agreed { width, leaders: 0, norms: false },
        }),
        Exchange::Automatic => Err(Error::BadParameter {
            method: recipe.spec.clone(),
            name: "methods".into(),
            value: recipe.spec.clone(),
            expected: "methods that say by themselves how to travel".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(spec: &str) -> f64 {
        Way::all(spec).unwrap()[0].legs(1e6, 0.01).iter().map(|leg| leg.bytes).sum()
    }

    #[test]
    fn every_method_has_ways_but_auto() {
        for method in crate::method::METHODS.iter().filter(|method| method.name != "auto") {
            let ways = Way::all(method.name).unwrap();
            // Contributions and sums go straight, there is no choice.
            assert!(ways.len() >= 2 || method.name == "quantized", "{}", method.name);
        }
        assert!(Way::all("auto").is_err());
    }

    #[test]
    fn narrower_values_are_fewer_bytes() {
        assert_eq!(bytes("dense"), 4e6);
        assert_eq!(bytes("dense:values=bf16"), 2e6);
        let (whole, half) = (bytes("topk"), bytes("topk:values=f16"));
        assert!((whole - half - 2e4).abs() < 1.0);
        assert!(bytes("redsync:quantize=true") < 0.3 * whole);
        // No coordinates travel.
        assert_eq!(bytes("random-k"), 4.0 * 10_001.0);
        // Two leaders: nearly twice the values.
        assert!(bytes("iwp:leaders=2") > 1.9 * bytes("iwp"));
        assert!(bytes("ar-topk:leader=var") > bytes("ar-topk"));
    }
}
