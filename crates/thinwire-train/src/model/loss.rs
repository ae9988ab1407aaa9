//! The loss of a classifier, and how often it is right.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

/// The mean cross entropy between rows of logits and the class of each row, in nats.
///
/// # Panics
/// When there is another number of targets than of rows.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let [rows, _] = logits.dims();
    assert_eq!(rows, targets.dims()[0], "one target for each row of logits");
    // The framework subtracts the largest logit of a row first, so nothing overflows.
    log_softmax(logits, 1).gather(1, targets.unsqueeze_dim(1)).mean().neg()
}

/// The number of rows whose largest logit is that of the target.
///
/// # Panics
/// When there is another number of targets than of rows.
pub fn correct(logits: &Tensor<2>, targets: &Tensor<1, Int>) -> usize {
    let [rows, _] = logits.dims();
    assert_eq!(rows, targets.dims()[0], "one target for each row of logits");
    let guesses = logits.clone().detach().argmax(1).squeeze_dim::<1>(1);
    let hits = guesses.equal(targets.clone()).int().sum().into_scalar::<i64>();
    usize::try_from(hits).expect("a number of rows is not negative")
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    const ROWS: [[f32; 4]; 4] =
        [[0.5, -1.0, 2.0, 0.0], [1e4, -1e4, 0.0, 9999.0], [-3.0, -3.0, -3.0, -3.0], [-80.0, 3.0, 90.0, 1.0]];
    const TARGETS: [i32; 4] = [2, 3, 0, 1];

    fn tensors(device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let logits = Tensor::from_data(TensorData::from(ROWS), device);
        (logits, Tensor::from_data(TensorData::from(TARGETS), device))
    }

    /// The loss and its gradient in 64 bits, from the definition.
    fn plainly() -> (f64, Vec<f64>) {
        let mut loss = 0.0;
        let mut gradient = Vec::new();
        for (row, target) in ROWS.iter().zip(TARGETS) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers: Vec<f64> = row.iter().map(|x| f64::from(x - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            loss += (sum.ln() - f64::from(row[target as usize] - largest)) / ROWS.len() as f64;
            for (class, power) in powers.iter().enumerate() {
                let hit = f64::from(u8::from(class == target as usize));
                gradient.push((power / sum - hit) / ROWS.len() as f64);
            }
        }
        (loss, gradient)
    }

    #[test]
    fn loss_and_gradient_are_those_of_the_definition() {
        let (logits, targets) = tensors(&Device::flex().autodiff());
        let logits = logits.require_grad();
        let loss = cross_entropy(logits.clone(), targets);
        let (expected, expected_gradient) = plainly();
        let found = f64::from(loss.clone().into_scalar::<f32>());
        assert!((found - expected).abs() < 1e-6 * expected, "{found} against {expected}");
        let gradient = logits.grad(&loss.backward()).expect("the logits took part").into_data();
        for (found, expected) in gradient.as_slice::<f32>().expect("f32").iter().zip(expected_gradient) {
            assert!((f64::from(*found) - expected).abs() < 1e-7, "{found} against {expected}");
        }
    }

    #[test]
    fn hits_are_counted() {
        // Row 2 has no largest logit: the first counts.
        let (logits, targets) = tensors(&Device::flex());
        assert_eq!(correct(&logits, &targets), 2);
        let (logits, targets) = tensors(&Device::flex().autodiff());
        assert_eq!(correct(&logits, &targets), 2);
    }
}
