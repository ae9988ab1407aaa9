//! Optimisers against PyTorch's numbers, against their definition in `f64`, and against each other.

use super::*;

/// Twenty steps on 8 weights of which the first 6 decay, in buckets of 5 and 3; `mean` gives the mean gradient of
/// all for each step.
fn twenty(optimizer: &mut dyn Optimizer, mut mean: impl FnMut(u64) -> Vec<f32>) -> Vec<f32> {
    let all: Vec<f32> = (0..8).map(|i| i as f32 / 8.0 - 0.5).collect();
    let mut weights = vec![all[..5].to_vec(), all[5..].to_vec()];
    for step in 0..20 {
        let mean = mean(step);
        optimizer.step(0.05, 1.0, &mut weights, &[mean[..5].to_vec(), mean[5..].to_vec()]);
    }
    weights.concat()
}

fn gradient(step: u64) -> Vec<f32> {
    (0..8).map(|i| ((step * 7 + i * 5) % 11) as f32 / 8.0 - 0.625).collect()
}

fn eight(spec: &str, momentum_in_memory: bool) -> Result<Box<dyn Optimizer>> {
    build(spec, Layout { lengths: &[5, 3], decays: &[vec![0..5], vec![0..1]], momentum_in_memory })
}

/// Made with PyTorch 2.11 on a CPU: torch.optim.SGD, Adam and AdamW with lr=0.05 and two parameter groups, the
/// first 6 weights with the decay and the last 2 without; weights i/8 - 0.5 and gradients ((7t + 5i) mod 11 - 5)/8
/// as float32, 20 steps, printed with 9 digits.
#[test]
fn twenty_steps_come_to_what_pytorch_comes_to() {
    #[rustfmt::skip]
    #[expect(clippy::excessive_precision, reason = "printed with 9 digits, which give back any f32")]
    let table: [(&str, [f32; 8]); 7] = [
        ("sgd", [-0.455979675, -0.199319884, -0.475157231, -0.0350759067, -0.0313500501, -0.0153717967, 0.192155704, 0.518759787]),
        ("sgd:momentum=0,decay=0.1", [-0.440419942, -0.334808528, -0.223582521, -0.120574676, -0.0120049147, 0.0956167132, 0.225000054, 0.412499994]),
        ("sgd:decay=0.1", [-0.222180679, -0.0534469411, -0.27305761, -0.00967420638, -0.00967363454, -0.0464967452, 0.192155704, 0.518759787]),
        ("sgd:nesterov=true,decay=0.1", [-0.208290368, -0.0665930808, -0.235401049, -0.0283076763, -0.016726207, -0.0477106757, 0.17294012, 0.541883767]),
        ("adam", [-0.424838275, -0.258108854, -0.423255384, 0.00866113044, -0.0781514123, 0.0812403038, 0.183660045, 0.468728483]),
        ("adam:beta1=0.8,beta2=0.95,epsilon=0.001,decay=0.1", [-0.355276346, -0.1752249, -0.309303522, -0.0163023174, -0.0431605391, 0.0658979416, 0.188614219, 0.465193599]),
        ("adamw:decay=0.1", [-0.384090036, -0.230406344, -0.386038333, 0.00899419747, -0.0707855448, 0.0710673183, 0.183660045, 0.468728483]),
    ];
    for (spec, expected) in table {
        let found = twenty(&mut *eight(spec, false).unwrap(), gradient);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 4e-7, "{spec}: {found} {expected}");
        }
    }
}

/// The definition, one weight at a time.
struct Plain {
    weight: f64,
    first: f64,
    second: f64,
}

impl Plain {
    fn sgd(&mut self, lr: f64, gradient: f64, momentum: f64, nesterov: bool, decay: f64) {
        let gradient = gradient + decay * self.weight;
        self.first = momentum * self.first + gradient;
        self.weight -= lr * if nesterov { gradient + momentum * self.first } else { self.first };
    }

    fn adam(&mut self, lr: f64, step: i32, gradient: f64, decay: f64, decoupled: bool) {
        let (beta1, beta2) = (0.9f64, 0.999f64);
        let gradient = if decoupled { gradient } else { gradient + decay * self.weight };
        self.first = beta1 * self.first + (1.0 - beta1) * gradient;
        self.second = beta2 * self.second + (1.0 - beta2) * gradient * gradient;
        let first = self.first / (1.0 - beta1.powi(step));
        let second = self.second / (1.0 - beta2.powi(step));
        let pull = if decoupled { lr * decay * self.weight } else { 0.0 };
        self.weight -= lr * first / (second.sqrt() + 1e-8) + pull;
    }
}

#[test]
fn a_thousand_steps_stay_with_the_definition() {
    let (lengths, decays) = ([1003, 258], [vec![10..700, 900..1003], vec![]]);
    for (spec, momentum, nesterov, decay, decoupled) in [
        ("sgd:momentum=0,decay=0.001", 0.0, false, 0.001, None),
        ("sgd:decay=0.001", 0.9, false, 0.001, None),
        ("sgd:nesterov=true,decay=0.001", 0.9, true, 0.001, None),
        ("adam:decay=0.001", 0.0, false, 0.001, Some(false)),
        ("adamw", 0.0, false, 0.01, Some(true)),
    ] {
        let layout = Layout { lengths: &lengths, decays: &decays, momentum_in_memory: false };
        let mut optimizer = build(spec, layout).unwrap();
        let start = |bucket: usize, i: usize| ((i * 31 + bucket) % 41) as f32 / 20.0 - 1.0;
        let make = |value: &dyn Fn(usize, usize) -> f32| -> Vec<Vec<f32>> {
            lengths.iter().enumerate().map(|(b, &n)| (0..n).map(|i| value(b, i)).collect()).collect()
        };
        let mut weights = make(&start);
        let mut plain: Vec<Vec<Plain>> = weights
            .iter()
            .map(|run| run.iter().map(|&w| Plain { weight: w.into(), first: 0.0, second: 0.0 }).collect())
            .collect();
        for step in 1..=1000 {
            let lr = if step <= 500 { 0.01 } else { 0.001 };
            let noise =
                |b: usize, i: usize| ((i * 7919 + b * 13 + step * 104_729) % 1009) as f32 / 504.0 - 1.0;
            let means = make(&noise);
            optimizer.step(lr, 1.0, &mut weights, &means);
            for (bucket, run) in plain.iter_mut().enumerate() {
                for (i, one) in run.iter_mut().enumerate() {
                    let decay =
                        if decays[bucket].iter().any(|range| range.contains(&i)) { decay } else { 0.0 };
                    let gradient = f64::from(means[bucket][i]);
                    match decoupled {
                        None => one.sgd(lr, gradient, momentum, nesterov, decay),
                        Some(decoupled) => one.adam(lr, step as i32, gradient, decay, decoupled),
                    }
                }
            }
        }
        assert_eq!(optimizer.step_count(), 1000);
        for (weight, one) in weights.iter().flatten().zip(plain.iter().flatten()) {
            let far = (f64::from(*weight) - one.weight).abs();
            assert!(far < 3e-5, "{spec}: {weight} {}", one.weight);
        }
    }
}

#[test]
fn a_momentum_moved_into_the_method_comes_to_the_same() {
    for (spec, nesterov) in [("sgd:decay=0.1", false), ("sgd:nesterov=true,decay=0.1", true), ("sgd", false)]
    {
        let usual = twenty(&mut *eight(spec, false).unwrap(), gradient);
        let mut moved = eight(spec, true).unwrap();
        // What the method does when everything is sent.
        let mut buffer = [0.0; 8];
        let with_momentum = |step| {
            let mut gradient = gradient(step);
            for (moving, g) in buffer.iter_mut().zip(&mut gradient) {
                *moving = 0.9 * *moving + *g;
                *g = if nesterov { *g + 0.9 * *moving } else { *moving };
            }
            gradient
        };
        let found = twenty(&mut *moved, with_momentum);
        for (found, usual) in found.iter().zip(&usual) {
            assert!((found - usual).abs() < 1e-6, "{spec}: {found} {usual}");
        }
        let names: Vec<_> = moved.state().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, if spec == "sgd" { vec![] } else { vec!["decay_momentum"] });
    }
}

#[test]
fn a_restored_state_goes_on_with_the_same_bits() {
    for (spec, in_memory) in [
        ("sgd:decay=0.1", false),
        ("sgd:decay=0.1", true),
        ("sgd:momentum=0", false),
        ("adam", false),
        ("adamw", false),
    ] {
        let (mut one, mut two) = (eight(spec, in_memory).unwrap(), eight(spec, in_memory).unwrap());
        let middle = twenty(&mut *one, gradient);
        let mut weights = vec![middle[..5].to_vec(), middle[5..].to_vec()];
        for (name, values) in one.state() {
            two.restore(name, values.to_vec()).unwrap();
        }
        two.set_step_count(one.step_count());
        let mut others = weights.clone();
        for step in 20..30 {
            let means = [gradient(step)[..5].to_vec(), gradient(step)[5..].to_vec()];
            one.step(0.01, 1.0, &mut weights, &means);
            two.step(0.01, 1.0, &mut others, &means);
        }
        assert_eq!(weights, others, "{spec}");
        assert_eq!(one.state(), two.state(), "{spec}");
    }
}

/// Sparse steps go by the second moment of the full ones, which stays; the first moment makes room for denominators, and
/// begins anew with the next full step.
#[test]
fn adam_keeps_its_second_moment_in_sparse_steps() {
    for (spec, decay) in [("adamw:decay=0.1", 0.1f32), ("adamw:decay=0", 0.0)] {
        let mut adam = eight(spec, true).unwrap();
        let mut weights = vec![vec![1.0f32; 5], vec![2.0; 3]];
        let gradients = [gradient(1)[..5].to_vec(), gradient(1)[5..].to_vec()];
        adam.step(0.1, 1.0, &mut weights, &gradients);
        let before = weights.clone();
        let second: Vec<Vec<f32>> = adam.state()[1].1.to_vec();
        let means = [vec![0.0, 3.0, 0.0, -1.0, 0.5], vec![0.0, 0.0, 7.0]];
        adam.step(0.1, 0.1, &mut weights, &means);
        assert_eq!(adam.state()[0].0, "denominator");
        assert_eq!(adam.state()[1].1, second);
        for (bucket, squares) in second.iter().enumerate() {
            let roots: Vec<f32> = squares.iter().map(|square| (square / 0.001).sqrt()).collect();
            let mean_root = roots.iter().sum::<f32>() / roots.len() as f32;
            for (i, root) in roots.iter().enumerate() {
                let old = before[bucket][i];
                let decay = if bucket == 0 || i == 0 { decay } else { 0.0 };
                let expected = old * (1.0 - 0.1 * decay)
                    - (0.01 * means[bucket][i] / (root + 1e-3 * mean_root)).clamp(-1.0, 1.0);
                let found = weights[bucket][i];
                assert!(
                    (found - expected).abs() < 1e-4 * expected.abs().max(1.0),
                    "{spec}: {found}, {expected}"
                );
            }
        }
        adam.step(0.1, 1.0, &mut weights, &gradients);
        assert_eq!(adam.state()[0].0, "first_moment");
    }
}

#[test]
fn without_a_local_momentum_adam_treats_all_steps_alike() {
    let mut steps = [1.0, 0.1].map(|density| {
        let mut adam = eight("adam", false).unwrap();
        let mut weights = vec![vec![1.0f32; 5], vec![2.0; 3]];
        for step in 0..4 {
            let means = [gradient(step)[..5].to_vec(), gradient(step)[5..].to_vec()];
            adam.step(0.1, density, &mut weights, &means);
        }
        weights
    });
    assert_eq!(std::mem::take(&mut steps[0]), steps[1]);
}

#[test]
fn what_is_wrong_is_refused() {
    let error = |spec: &str, in_memory| eight(spec, in_memory).err().unwrap().to_string();
    assert_eq!(error("lamb", false), "there is no optimiser \"lamb\"; there are: sgd, adam, adamw");
    assert!(error("sgd:momentum=1", false).contains("from 0 up to but not including 1"));
    assert!(error("sgd:decay=-1", false).contains("at least 0"));
    assert!(error("sgd:momentum=0,nesterov=true", false).contains("needs a momentum above 0"));
    assert!(error("adamw:epsilon=0", false).contains("0.000000000001 to 1"));

    let mut sgd = eight("sgd", false).unwrap();
    let found = sgd.restore("momentum", vec![vec![0.0; 5]]).unwrap_err().to_string();
    assert_eq!(
        found,
        "the optimiser's momentum buckets of [5] elements: the optimiser has buckets of [5, 3] elements"
    );
    let found = sgd.restore("first_moment", vec![]).unwrap_err().to_string();
    assert_eq!(found, "the optimiser's state first_moment: sgd as it is set remembers: momentum");
    assert!(eight("adam", false).unwrap().restore("momentum", vec![]).is_err());
    assert!(eight("sgd:momentum=0", false).unwrap().restore("momentum", vec![]).is_err());
}

#[test]
#[should_panic(expected = "lengths of weights and means of bucket 1")]
fn a_mean_of_another_length_is_a_mistake_of_the_caller() {
    eight("sgd", false).unwrap().step(
        0.1,
        1.0,
        &mut [vec![0.0; 5], vec![0.0; 3]],
        &[vec![0.0; 5], vec![0.0; 2]],
    );
}

#[test]
fn a_spec_knows_its_text_and_its_momentum() {
    let spec = Spec::parse("sgd:nesterov=true,momentum=0.9,decay=1e-4").unwrap();
    assert_eq!(spec.to_string(), "sgd:nesterov=true,decay=0.0001");
    let momentum = spec.momentum().unwrap();
    assert_eq!(momentum, Momentum { coefficient: 0.9, nesterov: true });
    // The text is one that a method takes.
    thinwire::method::parse(&format!("dgc:{momentum}")).unwrap();
    assert_eq!(Spec::parse("sgd:momentum=0").unwrap().momentum(), None);
    assert_eq!(Spec::parse("adam").unwrap().momentum(), None);
}
