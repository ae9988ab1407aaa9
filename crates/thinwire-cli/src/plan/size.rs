//! How large the gradient is: a number, or a model that everybody knows.

/// A model with a name, and the parameters it has.
pub struct Known {
    /// The name it is asked for by.
    pub name: &'static str,
    /// Its parameters, biases and norms included.
    pub parameters: u64,
}

const fn known(name: &'static str, parameters: u64) -> Known {
    Known { name, parameters }
}

/// Well-known models. The vision models are those of torchvision, with 1,000 classes; the language models those that
/// their authors published.
pub const MODELS: &[Known] = &[
    known("mobilenet-v2", 3_504_872),
    known("resnet18", 11_689_512),
    known("resnet50", 25_557_032),
    known("resnet101", 44_549_160),
    known("resnet152", 60_192_808),
    known("alexnet", 61_100_840),
    known("vgg16", 138_357_544),
    known("vit-b", 86_567_656),
    known("vit-l", 304_326_632),
    known("bert-base", 110_000_000),
    known("bert-large", 340_000_000),
    known("gpt2", 124_439_808),
    known("gpt2-medium", 354_823_168),
    known("gpt2-xl", 1_557_611_200),
    known("llama-7b", 6_738_415_616),
    known("llama-13b", 13_015_864_320),
];

/// More is a slip of the pen: a thousand times the largest model there is.
const LARGEST: f64 = 1e15;

/// The parameters of the model of this name; what would be right is the error.
pub fn of_model(name: &str) -> Result<u64, String> {
    let found = MODELS.iter().find(|model| model.name == name.to_ascii_lowercase());
    found.map(|model| model.parameters).ok_or_else(|| {
        let names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
        format!(
            "there is no model {name:?} on the list; the models are: {}; for another give its size, as --params 25.6M",
            names.join(", ")
        )
    })
}

/// Reads a number of parameters: `25557032`, `25_557_032`, `25.6M`, `1.3B`. What would be right is the error.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a number of parameters; write such as 25557032, 25.6M (million) or 1.3B (billion)"
        )
    };
    let plain = text.trim().replace('_', "");
    let digits = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (number, unit) = plain.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "b" | "B" | "g" | "G" => 1e9,
        "t" | "T" => 1e12,
        _ => return Err(wrong()),
    };
    let parameters = (number * factor).round();
    if (1.0..=LARGEST).contains(&parameters) { Ok(parameters as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, parameters) in [
            ("1", 1),
            ("25557032", 25_557_032),
            ("25_557_032", 25_557_032),
            ("25.6M", 25_600_000),
            ("138m", 138_000_000),
            ("1.3B", 1_300_000_000),
            ("7 B", 7_000_000_000),
            ("500k", 500_000),
        ] {
            assert_eq!(parse(text), Ok(parameters), "{text}");
        }
        for text in ["", "M", "0", "-5", "many", "1.2.3", "25MB", "1e9", "9999999T"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")) && error.contains("25.6M"), "{error}");
        }
    }

    #[test]
    fn a_model_that_is_not_known_is_told_the_others() {
        assert_eq!(of_model("resnet50"), Ok(25_557_032));
        assert_eq!(of_model("ViT-B"), Ok(86_567_656));
        let error = of_model("resnet51").unwrap_err();
        assert!(
            MODELS.iter().all(|model| error.contains(model.name)) && error.contains("--params"),
            "{error}"
        );
    }
}
