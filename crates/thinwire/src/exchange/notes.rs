//! Words that ride to all ranks with what travels anyway, so that agreeing on something costs no message of its own.
//!
//! Behind a frame they are bytes; behind the values of a sum every rank has words of its own, in which all others have
//! zeros, so that the sum hands everybody everybody's.

/// Puts words behind a message.
pub(super) fn append(words: &[f32], message: &mut Vec<u8>) {
    message.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// Puts this rank's words behind the values of a sum, and zeros in the places of all others.
pub(super) fn push(words: &[f32], rank: usize, ranks: usize, values: &mut Vec<f32>) {
    let begin = values.len() + rank * words.len();
    values.resize(values.len() + ranks * words.len(), 0.0);
    values[begin..begin + words.len()].copy_from_slice(words);
}

/// Takes everybody's words, so many of each, from behind the values of a sum.
pub(super) fn pop(words: usize, ranks: usize, values: &mut Vec<f32>, notes: &mut Vec<f32>) {
    let begin = values.len() - ranks * words;
    notes.clear();
    notes.extend_from_slice(&values[begin..]);
    values.truncate(begin);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_everybodys_words_out_of_a_sum() {
        let mut sum = vec![0.0; 2 + 3 * 2];
        for rank in 0..3 {
            let mut values = vec![1.0, 2.0];
            push(&[rank as f32 + 0.1, 7.0], rank, 3, &mut values);
            sum.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        }
        let mut notes = Vec::new();
        pop(2, 3, &mut sum, &mut notes);
        assert_eq!(sum, [3.0, 6.0]);
        assert_eq!(notes, [0.1, 7.0, 1.1, 7.0, 2.1, 7.0]);
    }
}
