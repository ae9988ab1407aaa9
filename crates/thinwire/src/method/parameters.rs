//! Typed parameters of methods, given as text such as `redsync:density=0.001,quantize=true`.
//!
//! A method lists its parameters as constants; what a user writes is checked against that list
//! once, here, with an error that says what would be right. After that a value can only be a good
//! one, so the getters can't fail.

mod kind;

use std::fmt;

use kind::Value;
pub use kind::{Kind, Parameter};

use crate::memory::Warmup;
use crate::{Error, Result};

/// A full set of a method's parameters, all of them checked.
///
/// [`Display`](fmt::Display) gives the method with only what differs from the defaults; that text
/// parses to the same set.
///
/// ```
/// use thinwire::method::{Kind, Parameter, Parameters, split_spec};
///
/// const COMMON: &[Parameter] =
///     &[Parameter { name: "density", kind: Kind::Density, default: "0.001", help: "share of elements sent" }];
/// const OWN: &[Parameter] =
///     &[Parameter { name: "quantize", kind: Kind::Flag, default: "false", help: "send one value for all" }];
///
/// let (method, text) = split_spec("redsync:density=1/1000,quantize=true");
/// assert_eq!(method, "redsync");
/// let parameters = Parameters::parse("redsync", &[COMMON, OWN], text)?;
/// assert_eq!(parameters.number("density"), 0.001);
/// assert!(parameters.flag("quantize"));
/// assert_eq!(parameters.to_string(), "redsync:quantize=true");
/// # Ok::<(), thinwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    method: &'static str,
    entries: Vec<(&'static Parameter, Value)>,
}

impl Parameters {
    /// The parameters of `method`, which are those of all `groups`, from `name=value` pairs
    /// separated by commas; what is not given has its default.
    ///
    /// # Errors
    /// [`Error::UnknownParameter`] with the names there are; [`Error::BadParameter`] for a wrong
    /// value, a missing `=` and a name given twice.
    ///
    /// # Panics
    /// When the method is defined wrongly: a default that its own kind refuses, or two parameters of
    /// one name.
    pub fn parse(method: &'static str, groups: &[&'static [Parameter]], text: &str) -> Result<Parameters> {
        let mut parameters = Parameters { method, entries: Vec::new() };
        for parameter in groups.iter().flat_map(|group| group.iter()) {
            let twice = parameters.position(parameter.name).is_some();
            assert!(!twice, "method {method:?} defines parameter {:?} twice", parameter.name);
            parameters.entries.push((parameter, parameters.default_of(parameter)));
        }
        if text.trim().is_empty() {
            return Ok(parameters);
        }
        let mut given = Vec::new();
        for pair in text.split(',') {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim()),
                None => return Err(parameters.missing_value(pair.trim())),
            };
            if given.contains(&name) {
                return Err(parameters.bad(name, value, format!("{name} to be given once")));
            }
            parameters.set(name, value)?;
            given.push(name);
        }
        Ok(parameters)
    }

    /// Gives one parameter another value.
    ///
    /// # Errors
    /// As in [`Parameters::parse`]; the old value stays.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(position) = self.position(name) else { return Err(self.unknown(name)) };
        let value = value.trim();
        let read = self.entries[position].0.kind.read(value);
        self.entries[position].1 = read.map_err(|expected| self.bad(name, value, expected))?;
        Ok(())
    }

    /// The method these belong to.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// A density, a fraction or a number.
    ///
    /// # Panics
    /// Like every getter here: when the method has no such parameter, or it is of another kind.
    pub fn number(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => self.wrong_kind(name, "number", other),
        }
    }

    /// A whole number.
    pub fn count(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Count(count) => *count,
            other => self.wrong_kind(name, "count", other),
        }
    }

    /// A yes or no.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Flag(flag) => *flag,
            other => self.wrong_kind(name, "flag", other),
        }
    }

    /// One word of the parameter's list.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Choice(word) => word,
            other => self.wrong_kind(name, "choice", other),
        }
    }

    /// Patterns for layer names, none of them empty.
    pub fn patterns(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Value::Patterns(patterns) => patterns.clone(),
            other => self.wrong_kind(name, "patterns", other),
        }
    }

    /// A warm-up.
    pub fn warmup(&self, name: &str) -> Warmup {
        match self.value(name) {
            Value::Warmup(warmup) => warmup.clone(),
            other => self.wrong_kind(name, "warmup", other),
        }
    }

    /// A text.
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(text) => text,
            other => self.wrong_kind(name, "text", other),
        }
    }

    /// Whether the method has a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(parameter, _)| parameter.name == name)
    }

    fn value(&self, name: &str) -> &Value {
        let position = self.position(name).unwrap_or_else(|| panic!("{}", self.unknown(name)));
        &self.entries[position].1
    }

    fn default_of(&self, parameter: &Parameter) -> Value {
        let wrong = |expected| {
            panic!("the default is wrong: {}", self.bad(parameter.name, parameter.default, expected))
        };
        parameter.kind.read(parameter.default).unwrap_or_else(wrong)
    }

    fn wrong_kind(&self, name: &str, asked: &str, value: &Value) -> ! {
        panic!("method {:?} asks for parameter {name:?} as {asked}, but it holds {value:?}", self.method)
    }

    fn unknown(&self, name: &str) -> Error {
        let names: Vec<&str> = self.entries.iter().map(|(parameter, _)| parameter.name).collect();
        let known = if names.is_empty() { "none".into() } else { names.join(", ") };
        Error::UnknownParameter { method: self.method.into(), name: name.into(), known }
    }

    fn bad(&self, name: &str, value: &str, expected: String) -> Error {
        Error::BadParameter { method: self.method.into(), name: name.into(), value: value.into(), expected }
    }

    /// The error for a pair without `=`: empty, unknown, or a name that needs a value.
    fn missing_value(&self, name: &str) -> Error {
        match self.position(name) {
            Some(position) => {
                let expected = self.entries[position].0.kind.describe();
                self.bad(name, "", format!("{name}=VALUE, where VALUE is {expected}"))
            }
            None if name.is_empty() => self.bad("", "", "name=value pairs separated by single commas".into()),
            None => self.unknown(name),
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.method)?;
        let changed = self.entries.iter().filter(|(parameter, value)| *value != self.default_of(parameter));
        for (number, (parameter, value)) in changed.enumerate() {
            write!(out, "{}{}={value}", if number == 0 { ':' } else { ',' }, parameter.name)?;
        }
        Ok(())
    }
}

/// Cuts `redsync:density=0.1` at the first colon into the method and its parameters; without a
/// colon the parameters are empty.
///
/// ```
/// use thinwire::method::split_spec;
/// assert_eq!(split_spec("redsync:density=0.1"), ("redsync", "density=0.1"));
/// assert_eq!(split_spec("dense"), ("dense", ""));
/// ```
pub fn split_spec(spec: &str) -> (&str, &str) {
    let (method, text) = spec.split_once(':').unwrap_or((spec, ""));
    (method.trim(), text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &[Parameter] = &[
        Parameter { name: "density", kind: Kind::Density, default: "0.001", help: "" },
        Parameter { name: "momentum", kind: Kind::Fraction, default: "0", help: "" },
        Parameter { name: "exclude", kind: Kind::Patterns, default: "", help: "" },
        Parameter { name: "warmup", kind: Kind::Warmup, default: "none", help: "" },
    ];
    const OWN: &[Parameter] = &[
        Parameter { name: "quantize", kind: Kind::Flag, default: "false", help: "" },
        Parameter { name: "reuse", kind: Kind::Count { min: 1, max: 100 }, default: "5", help: "" },
        Parameter { name: "leader", kind: Kind::Choice(&["star", "var"]), default: "star", help: "" },
        Parameter { name: "file", kind: Kind::Text, default: "", help: "" },
    ];

    fn parse(text: &str) -> Result<Parameters> {
        Parameters::parse("redsync", &[COMMON, OWN], text)
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        for text in ["", "  "] {
            let parameters = parse(text).unwrap();
            assert_eq!((parameters.number("density"), parameters.number("momentum")), (0.001, 0.0));
            assert_eq!((parameters.flag("quantize"), parameters.count("reuse")), (false, 5));
            assert_eq!((parameters.choice("leader"), parameters.warmup("warmup")), ("star", Warmup::None));
            assert!(parameters.patterns("exclude").is_empty());
            assert_eq!((parameters.to_string().as_str(), parameters.method()), ("redsync", "redsync"));
        }
    }

    #[test]
    fn the_canonical_text_parses_to_the_same_set() {
        for (text, canonical) in [
            ("density=0.001", "redsync"),
            ("density=0.1%,quantize=false", "redsync"),
            ("quantize=true", "redsync:quantize=true"),
            (" leader = var , density = 1/64 ", "redsync:density=0.015625,leader=var"),
            ("warmup=linear/5/1/0.1,reuse=20", "redsync:warmup=linear/5,reuse=20"),
            ("warmup=dgc,exclude=fc=1:*|*.bias", "redsync:exclude=fc=1:*|*.bias,warmup=dgc"),
            ("momentum=0.9", "redsync:momentum=0.9"),
            ("file=a=b:c", "redsync:file=a=b:c"),
        ] {
            let parameters = parse(text).unwrap();
            assert_eq!(parameters.to_string(), canonical);
            let (method, again) = split_spec(canonical);
            assert_eq!((method, parse(again)), ("redsync", Ok(parameters)));
        }
    }

    #[test]
    fn an_emptied_list_differs_from_a_default_that_is_not() {
        const LISTED: &[Parameter] =
            &[Parameter { name: "exclude", kind: Kind::Patterns, default: "fc.*", help: "" }];
        let parameters = Parameters::parse("topk", &[LISTED], "exclude=").unwrap();
        assert_eq!(parameters.to_string(), "topk:exclude=");
        assert_eq!(Parameters::parse("topk", &[LISTED], "exclude="), Ok(parameters));
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, expected) in [
            (
                "densty=0.1",
                "redsync has no parameter \"densty\"; its parameters are: density, momentum, exclude, warmup, quantize, reuse, leader, file",
            ),
            ("density=2", "redsync: parameter density=2 is not right; expected a number above 0 and up to 1"),
            (
                "quantize",
                "redsync: parameter quantize= is not right; expected quantize=VALUE, where VALUE is true or false",
            ),
            ("reuse=1,reuse=1", "redsync: parameter reuse=1 is not right; expected reuse to be given once"),
            ("leader=any", "redsync: parameter leader=any is not right; expected one of: star, var"),
            (
                "density=0.1,,reuse=1",
                "redsync: parameter = is not right; expected name=value pairs separated by single commas",
            ),
            (
                "warmup=dense/x",
                "redsync: parameter warmup=dense/x is not right; expected a number of epochs such as 1.5, a number of \
                 steps such as 500steps, or a part of the run such as 15% in place of \"x\"",
            ),
        ] {
            assert_eq!(message(text), expected);
        }
        assert!(message("fast").starts_with("redsync has no parameter \"fast\"; its"));
        let none = Parameters::parse("dense", &[], "density=1").unwrap_err().to_string();
        assert_eq!(none, "dense has no parameter \"density\"; its parameters are: none");
    }

    #[test]
    fn a_refused_set_leaves_the_old_value() {
        let mut parameters = parse("reuse=7").unwrap();
        parameters.set("density", "1%").unwrap();
        assert!(parameters.set("reuse", "0").is_err() && parameters.set("other", "0").is_err());
        assert_eq!(parameters.to_string(), "redsync:density=0.01,reuse=7");
    }

    #[test]
    #[should_panic(expected = "the default is wrong: topk: parameter density=0 is not right")]
    fn a_wrong_default_is_a_programming_error() {
        const WRONG: &[Parameter] =
            &[Parameter { name: "density", kind: Kind::Density, default: "0", help: "" }];
        let _ = Parameters::parse("topk", &[WRONG], "");
    }

    #[test]
    #[should_panic(expected = "method \"redsync\" defines parameter \"density\" twice")]
    fn a_name_in_two_groups_is_a_programming_error() {
        let _ = Parameters::parse("redsync", &[COMMON, COMMON], "");
    }

    #[test]
    #[should_panic(expected = "has no parameter \"quantise\"")]
    fn asking_for_an_unknown_name_is_a_programming_error() {
        parse("").unwrap().flag("quantise");
    }

    #[test]
    #[should_panic(expected = "asks for parameter \"density\" as count, but it holds Number(0.001)")]
    fn asking_for_another_kind_is_a_programming_error() {
        parse("").unwrap().count("density");
    }

    #[test]
    fn a_spec_is_cut_at_the_first_colon() {
        assert_eq!(split_spec(" topk : exclude=a:b "), ("topk", "exclude=a:b"));
        assert_eq!(
            [split_spec(""), split_spec("topk:"), split_spec(":x")],
            [("", ""), ("topk", ""), ("", "x")]
        );
    }
}
