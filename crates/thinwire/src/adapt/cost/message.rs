//! The bytes of one rank's compressed gradient.

/// What one rank has to say: values, and where they belong. In bytes.
///
/// The papers count four bytes for a value and four for its index, so that one symbol does for both. The codec does
/// better than that (about ten bits for an index at a density of 1 %), so the two are apart here: set them to what
/// was measured, or take one of the papers' forms.
///
/// ```
/// use thinwire::adapt::cost::Message;
///
/// assert_eq!(Message::words(1000.0), Message { values: 4000.0, indices: 4000.0 });
/// assert_eq!(Message::words(1000.0).bytes(), 8000.0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Message {
    /// Bytes of values.
    pub values: f64,
    /// Bytes that say where the values belong.
    pub indices: f64,
}

impl Message {
    /// So many values with their indices, four bytes each: AR-Topk's M·c and gTop-k's k.
    ///
    /// `kept` is density times elements, unrounded: the model knows no smallest k of 1.
    pub fn words(kept: f64) -> Message {
        Message { values: 4.0 * kept, indices: 4.0 * kept }
    }

    /// So many indices of four bytes and no value: RedSync's quantised message, whose values all have one sign and
    /// are sent as their mean. The four bytes of the mean are left out, as in the formula.
    pub fn indices_only(kept: f64) -> Message {
        Message { values: 0.0, indices: 4.0 * kept }
    }

    /// A bitmap of all elements and so many values of `bits` bits: the message of the FFT pipeline.
    ///
    /// One bit for each element of the gradient, as the paper's text has it. Whether the authors meant one for each
    /// complex coefficient, half as many, is not certain. The ratio of 21.3 that the paper gives for 15 % of the
    /// values at 10 bits leaves the bitmap out; with it the ratio is 12.8.
    pub fn bitmap(elements: f64, kept: f64, bits: f64) -> Message {
        Message { values: kept * bits / 8.0, indices: elements / 8.0 }
    }

    /// All its bytes.
    pub fn bytes(self) -> f64 {
        self.values + self.indices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_forms() {
        assert_eq!(Message::indices_only(1000.0).bytes(), 0.5 * Message::words(1000.0).bytes());
        // FFT, theta 0.85 and 10 bits.
        let message = Message::bitmap(1e6, 0.15e6, 10.0);
        assert!((4e6 / message.values - 21.33).abs() < 0.01);
        assert!((4e6 / message.bytes() - 12.8).abs() < 1e-9);
    }
}
