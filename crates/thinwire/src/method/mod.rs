//! Named recipes: one file each, and one line in [`METHODS`].
//!
//! A method is written as its name and, after a colon, the parameters that differ from their defaults:
//!
//! ```
//! let recipe = thinwire::method::parse("redsync:density=0.001,quantize=true")?;
//! assert_eq!(recipe.spec, "redsync:quantize=true");
//!
//! let error = thinwire::method::parse("redsinc").unwrap_err();
//! assert!(error.to_string().contains("gaussian-k"));
//! # Ok::<(), thinwire::Error>(())
//! ```

mod ar_topk;
mod auto;
mod common;
mod dense;
mod dgc;
mod fft;
mod gaussian_k;
mod iwp;
mod mstopk;
mod parameters;
mod quantized;
mod random_k;
mod redsync;
mod topk;

pub use auto::for_sgd;
pub use parameters::{Kind, Parameter, Parameters, split_spec};

use crate::pipeline::Recipe;
use crate::{Error, Result};

/// A method: what it is called, where it comes from, what can be set, and how it is built.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// The name it is asked for by.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// The paper it implements, or "-".
    pub paper: &'static str,
    /// Its parameters, in groups.
    pub parameters: &'static [&'static [Parameter]],
    build: fn(&Parameters) -> Result<Recipe>,
}

/// All methods.
pub const METHODS: &[Method] = &[
    dense::METHOD,
    quantized::METHOD,
    topk::METHOD,
    gaussian_k::METHOD,
    redsync::METHOD,
    fft::METHOD,
    iwp::METHOD,
    ar_topk::METHOD,
    dgc::METHOD,
    mstopk::METHOD,
    random_k::METHOD,
    auto::METHOD,
];

impl Method {
    /// The method of this name.
    pub fn find(name: &str) -> Result<&'static Method> {
        METHODS.iter().find(|method| method.name == name).ok_or_else(|| Error::UnknownMethod {
            name: name.to_owned(),
            known: METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Whether it has a parameter of this name.
    pub fn has(&self, parameter: &str) -> bool {
        self.parameters.iter().flat_map(|group| group.iter()).any(|known| known.name == parameter)
    }

    /// Its recipe, with parameters such as `density=0.01,values=f16`.
    pub fn recipe(&self, parameters: &str) -> Result<Recipe> {
        let parameters = Parameters::parse(self.name, self.parameters, parameters)?;
        let recipe = (self.build)(&parameters)?;
        recipe.check()?;
        Ok(recipe)
    }
}

/// The recipe of a method given as text, such as `topk` or `redsync:density=0.001,quantize=true`.
pub fn parse(spec: &str) -> Result<Recipe> {
    let (name, parameters) = split_spec(spec);
    Method::find(name)?.recipe(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_builds_from_its_name_and_from_its_own_text() {
        for method in METHODS {
            let recipe = parse(method.name).unwrap();
            assert_eq!(recipe.spec, method.name);
            assert_eq!(parse(&recipe.spec).unwrap().spec, recipe.spec);
        }
    }

    #[test]
    fn every_parameter_can_be_given_its_default() {
        for method in METHODS {
            for parameter in method.parameters.iter().flat_map(|group| group.iter()) {
                let spec = format!("{}:{}={}", method.name, parameter.name, parameter.default);
                assert_eq!(parse(&spec).unwrap().spec, method.name, "{spec}");
                assert!(!parameter.help.is_empty());
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let message = |spec: &str| parse(spec).unwrap_err().to_string();
        assert!(message("nope").contains("dense, quantized, topk"));
        assert!(message("topk:densty=0.1").contains("density"));
        assert!(message("topk:density=2").contains("up to 1"));
        assert!(message("topk:scope=model").contains("bucket, layer"));
        assert!(message("fft:block=7").contains("even"));
        assert!(message("topk:feedback=false,momentum=0.9").contains("feedback"));
        assert!(message("topk:warmup=quantized/1,momentum=0.9").contains("dense/LENGTH"));
        assert!(message("redsync:quantize=true,feedback=false").contains("quantize"));
    }
}
