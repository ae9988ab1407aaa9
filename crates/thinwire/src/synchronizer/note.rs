//! The words that ride with every step of an automatic method: what each rank measured, and what rank 0 orders.

use crate::adapt::decision::Choice;

/// What one rank measured in the step before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Measure {
    pub sum: f32,
    pub spread: f32,
    pub work: f32,
    pub interval: f32,
    pub gain: f32,
    /// Seconds of an empty message to everybody right behind the step; 0 where none was asked for.
    pub echo: f32,
}

/// What rank 0 wants of the next step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Order {
    /// The choice to go by; the one in force, if nothing changes.
    pub choice: Choice,
    /// What is to be asked of the network behind it.
    pub ask: Ask,
}

/// What is asked of the network.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Ask {
    #[default]
    Nothing,
    /// An empty message, to tell the latency.
    Latency,
    /// A handful of messages, to tell the bandwidth too.
    Both,
}

const MEASURES: usize = 6;
/// Ways in one word: six bits each, in a whole number that an `f32` holds exactly.
const PACKED: usize = 4;
const BITS: usize = 6;

/// The most ways there can be.
pub(super) const MOST_WAYS: usize = 1 << BITS;

/// Words of a note for so many buckets; the same on every rank.
pub(super) fn words(buckets: usize) -> usize {
    MEASURES + 3 + buckets.div_ceil(PACKED)
}

/// This rank's note for so many buckets. Only rank 0's order counts; the others leave room for it.
pub(super) fn write(measure: Measure, order: &Order, buckets: usize, note: &mut Vec<f32>) {
    let Measure { sum, spread, work, interval, gain, echo } = measure;
    note.clear();
    // A value that is no number would be taken for a rank that can't take part.
    note.extend(
        [sum, spread, work, interval, gain, echo].map(|value| if value.is_finite() { value } else { 0.0 }),
    );
    note.extend([order.choice.number as f32, order.choice.density as f32, f32::from(order.ask as u8)]);
    let packed =
        order.choice.ways.chunks(PACKED).map(|ways| {
            ways.iter().enumerate().map(|(place, way)| way << (BITS * place)).sum::<usize>() as f32
        });
    note.extend(packed);
    note.resize(words(buckets), 0.0);
}

/// What one rank's words say of its measurements.
pub(super) fn measure(note: &[f32]) -> Measure {
    let [sum, spread, work, interval, gain, echo] = [0, 1, 2, 3, 4, 5].map(|place| note[place]);
    Measure { sum, spread, work, interval, gain, echo }
}

/// What rank 0's words order for so many buckets, each of which can take so many ways; what is wrong, if it can't be.
pub(super) fn order(note: &[f32], buckets: usize, ways: usize) -> Result<Order, String> {
    let [number, density, ask] = [0, 1, 2].map(|place| note[MEASURES + place]);
    let sane = (0.0..=16_777_216.0).contains(&number) && density > 0.0 && density <= 1.0;
    if !sane {
        return Err(format!("it orders choice {number} at a density of {density}"));
    }
    let mut chosen = Vec::with_capacity(buckets);
    for bucket in 0..buckets {
        let word = note[MEASURES + 3 + bucket / PACKED] as usize;
        let way = (word >> (BITS * (bucket % PACKED))) & (MOST_WAYS - 1);
        if way >= ways {
            return Err(format!("it orders way {way} for bucket {bucket}; there are {ways}"));
        }
        chosen.push(way);
    }
    let choice = Choice { number: number as u32, ways: chosen, density: f64::from(density) };
    let ask = match ask {
        1.0 => Ask::Latency,
        2.0 => Ask::Both,
        _ => Ask::Nothing,
    };
    Ok(Order { choice, ask })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_as_they_were_written() {
        for buckets in [1, 3, 4, 5, 170] {
            let ways = (0..buckets).map(|bucket| (bucket * 7) % 61).collect();
            let choice = Choice { number: 12_345, ways, density: f64::from(0.0123f32) };
            let ask = [Ask::Nothing, Ask::Latency, Ask::Both][buckets % 3];
            let order = Order { choice, ask };
            let measured =
                Measure { sum: 0.25, spread: 1e-6, work: 3.0, interval: 9.5, gain: 0.3, echo: 0.5 };
            let mut note = Vec::new();
            write(measured, &order, buckets, &mut note);
            assert_eq!(note.len(), words(buckets));
            assert_eq!(measure(&note), measured);
            assert_eq!(super::order(&note, buckets, 61).unwrap(), order);
        }
    }

    #[test]
    fn orders_that_can_not_be_are_refused() {
        let choice = Choice { number: 1, ways: vec![9], density: 0.5 };
        let mut note = Vec::new();
        write(
            Measure { sum: f32::NAN, ..Measure::default() },
            &Order { choice, ask: Ask::Nothing },
            1,
            &mut note,
        );
        assert!(note.iter().all(|word| word.is_finite()));
        assert!(order(&note, 1, 10).is_ok());
        assert!(order(&note, 1, 9).unwrap_err().contains("way 9"));
        note[MEASURES + 1] = 1.5;
        assert!(order(&note, 1, 10).unwrap_err().contains("density of 1.5"));
        note[MEASURES + 1] = f32::NAN;
        assert!(order(&note, 1, 10).is_err());
    }
}
