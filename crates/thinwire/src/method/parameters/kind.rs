//! What a parameter is, and how its text is read.

use std::fmt;

use crate::memory::Warmup;

/// One parameter of a method: its name, what it may be, its default, and a line of help.
///
/// ```
/// use thinwire::method::{Kind, Parameter};
/// const DENSITY: Parameter =
///     Parameter { name: "density", kind: Kind::Density, default: "0.001", help: "share of elements sent" };
/// assert_eq!(DENSITY.kind.describe(), "a number above 0 and up to 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// What stands left of the `=`.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// The value it has when it is not given, as text.
    pub default: &'static str,
    /// One line for people.
    pub help: &'static str,
}

/// What a parameter may be. Numbers may also be written as a ratio, `1/64`, or a percentage, `0.1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A share of elements to send: above 0, up to 1.
    Density,
    /// A share that may be none but not all, such as momentum: from 0, below 1.
    Fraction,
    /// A finite number from `min` to `max`, both allowed; an infinite bound is no bound.
    Number {
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// A whole number from `min` to `max`, both allowed; `u64::MAX` is no bound.
    Count {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One word of a list.
    Choice(&'static [&'static str]),
    /// Layer names with `*` and `?`, separated by `|`; an empty text is no pattern.
    Patterns,
    /// A [`Warmup`], such as `dense/1`.
    Warmup,
    /// Any text without commas, such as the name of a file.
    Text,
}

impl Kind {
    /// What would be right, to be read after "expected".
    pub fn describe(&self) -> String {
        match self {
            Kind::Density => "a number above 0 and up to 1".into(),
            Kind::Fraction => "a number from 0 up to but not including 1".into(),
            Kind::Number { min, max } => match (min.is_finite(), max.is_finite()) {
                (true, true) => format!("a number from {min} to {max}"),
                (true, false) => format!("a number of at least {min}"),
                (false, true) => format!("a number of at most {max}"),
                (false, false) => "a number".into(),
            },
            Kind::Count { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Flag => "true or false".into(),
            Kind::Choice(words) => format!("one of: {}", words.join(", ")),
            Kind::Patterns => "layer names with * and ?, separated by |, such as *.bias|norm?.*".into(),
            Kind::Warmup => format!("one of: {}", Warmup::FORMS),
            Kind::Text => "text without commas".into(),
        }
    }

    /// Reads a value, or says what would be right.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Density => number(text).filter(|&x| x > 0.0 && x <= 1.0).map(Value::Number),
            Kind::Fraction => number(text).filter(|x| (0.0..1.0).contains(x)).map(Value::Number),
            Kind::Number { min, max } => {
                number(text).filter(|x| (*min..=*max).contains(x)).map(Value::Number)
            }
            Kind::Count { min, max } => {
                text.parse().ok().filter(|count| (*min..=*max).contains(count)).map(Value::Count)
            }
            Kind::Flag => text.parse().ok().map(Value::Flag),
            Kind::Choice(words) => words.iter().find(|&&word| word == text).map(|&word| Value::Choice(word)),
            Kind::Patterns => patterns(text).map(Value::Patterns),
            Kind::Warmup => return text.parse().map(Value::Warmup),
            Kind::Text => Some(Value::Text(text.to_owned())).filter(|_| !text.contains(',')),
        };
        value.ok_or_else(|| self.describe())
    }
}

/// A finite number: `0.001`, `1e-3`, `1/64` or `0.1%`.
fn number(text: &str) -> Option<f64> {
    let plain = |text: &str| text.trim().parse::<f64>().ok();
    let value = if let Some((above, below)) = text.split_once('/') {
        plain(above)? / plain(below)?
    } else if let Some(percent) = text.strip_suffix('%') {
        // Moving the decimal point in the text rounds once; dividing by 100 would turn 0.7% into
        // 0.006999999999999999.
        plain(&format!("{}e-2", percent.trim()))?
    } else {
        plain(text)?
    };
    // Adding zero turns -0 into 0, which is how it is written.
    value.is_finite().then_some(value + 0.0)
}

/// Patterns separated by `|`. Commas separate parameters, so a pattern with one could not be written
/// back.
fn patterns(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let patterns: Vec<String> = text.split('|').map(|pattern| pattern.trim().to_owned()).collect();
    let good = patterns.iter().all(|pattern| !pattern.is_empty() && !pattern.contains(','));
    good.then_some(patterns)
}

/// A value that its kind has accepted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Count(u64),
    Flag(bool),
    Choice(&'static str),
    Patterns(Vec<String>),
    Warmup(Warmup),
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(out, "{number}"),
            Value::Count(count) => write!(out, "{count}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Choice(word) => out.write_str(word),
            Value::Patterns(patterns) => out.write_str(&patterns.join("|")),
            Value::Warmup(warmup) => write!(out, "{warmup}"),
            Value::Text(text) => out.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(kind: Kind, text: &str) -> Option<String> {
        kind.read(text).ok().map(|value| value.to_string())
    }

    #[test]
    fn numbers_may_be_ratios_and_percentages() {
        for (text, value) in [
            ("0.001", 0.001),
            ("1e-3", 0.001),
            ("1/64", 0.015625),
            (" 1 / 4 ", 0.25),
            ("0.1%", 0.001),
            ("0.7 %", 0.007),
            ("100%", 1.0),
        ] {
            assert_eq!(Kind::Density.read(text), Ok(Value::Number(value)), "{text}");
        }
        assert_eq!(accepts(Kind::Fraction, "-0").as_deref(), Some("0"));
        for text in [
            "", "%", "/", "1/0", "0/0", "1/2/3", "50%%", "1/2%", "7e-1%", "nan%", "nan", "inf", "0.1f",
            "0,1", "x",
        ] {
            assert_eq!(
                accepts(Kind::Number { min: f64::NEG_INFINITY, max: f64::INFINITY }, text),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn bounds_are_kept_to_the_point() {
        let accepted = |kind: Kind, texts: &[&str]| -> Vec<bool> {
            texts.iter().map(|text| kind.read(text).is_ok()).collect()
        };
        let texts = ["-0.1", "0", "0.5", "1", "1.1"];
        assert_eq!(accepted(Kind::Density, &texts), [false, false, true, true, false]);
        assert_eq!(accepted(Kind::Fraction, &texts), [false, true, true, false, false]);
        assert_eq!(accepted(Kind::Number { min: 0.0, max: 1.0 }, &texts), [false, true, true, true, false]);
        let texts = ["1", "2", "5", "6", "-2", "2.0", "", "99999999999999999999"];
        let expected = [false, true, true, false, false, false, false, false];
        assert_eq!(accepted(Kind::Count { min: 2, max: 5 }, &texts), expected);
    }

    #[test]
    fn words_are_taken_literally() {
        let choice = Kind::Choice(&["star", "var"]);
        assert_eq!(accepts(choice, "var").as_deref(), Some("var"));
        assert_eq!([accepts(choice, "Var"), accepts(choice, "st"), accepts(choice, "")], [None, None, None]);
        assert_eq!(accepts(Kind::Flag, "true").as_deref(), Some("true"));
        assert_eq!([accepts(Kind::Flag, "yes"), accepts(Kind::Flag, "1")], [None, None]);
    }

    #[test]
    fn patterns_are_separated_by_bars() {
        let read = |text| Kind::Patterns.read(text);
        assert_eq!(read(""), Ok(Value::Patterns(vec![])));
        assert_eq!(read("*.bias | norm?"), Ok(Value::Patterns(vec!["*.bias".into(), "norm?".into()])));
        for text in ["|", "a|", "|a", "a||b", "a,b"] {
            assert_eq!(read(text), Err(Kind::Patterns.describe()), "{text}");
        }
    }

    #[test]
    fn every_kind_says_what_would_be_right() {
        let infinity = f64::INFINITY;
        for (kind, text) in [
            (Kind::Density, "a number above 0 and up to 1"),
            (Kind::Fraction, "a number from 0 up to but not including 1"),
            (Kind::Number { min: 0.5, max: 2.0 }, "a number from 0.5 to 2"),
            (Kind::Number { min: 0.5, max: infinity }, "a number of at least 0.5"),
            (Kind::Number { min: -infinity, max: 2.0 }, "a number of at most 2"),
            (Kind::Number { min: -infinity, max: infinity }, "a number"),
            (Kind::Count { min: 1, max: 9 }, "a whole number from 1 to 9"),
            (Kind::Count { min: 1, max: u64::MAX }, "a whole number of at least 1"),
            (Kind::Flag, "true or false"),
            (Kind::Choice(&["star", "var"]), "one of: star, var"),
        ] {
            assert_eq!(kind.describe(), text);
            assert_eq!(kind.read("?"), Err(text.to_owned()));
        }
        assert!(Kind::Warmup.describe().starts_with("one of: none, dense/LENGTH"));
    }
}
