use super::*;

fn tensors(infos: &[(&str, &[usize])], named: bool) -> Tensors {
    let infos: Vec<Info> = infos
        .iter()
        .map(|(name, shape)| Info { name: (*name).into(), shape: shape.to_vec(), dtype: Dtype::F32 })
        .collect();
    let elements: usize = infos.iter().map(Info::elements).sum();
    let values = (0..elements).map(|i| i as f32).collect();
    Tensors { infos, values, fortran_order: false, named, metadata: None, rounded: 0 }
}

#[test]
fn weights_are_put_into_the_order_of_the_gradient() {
    let gradient = tensors(&[("b", &[2]), ("empty", &[0]), ("a", &[3])], true);
    let weights = tensors(&[("a", &[3]), ("b", &[2]), ("empty", &[0])], true);
    assert_eq!(weights.aligned_with(&gradient).unwrap(), [3., 4., 0., 1., 2.]);
}

#[test]
fn single_arrays_need_no_common_name() {
    let gradient = tensors(&[("gradient", &[2, 2])], false);
    for named in [true, false] {
        let weights = tensors(&[("weights", &[2, 2])], named);
        assert_eq!(weights.aligned_with(&gradient).unwrap(), [0., 1., 2., 3.]);
    }
    let mut fortran = tensors(&[("weights", &[2, 2])], false);
    fortran.fortran_order = true;
    let message = fortran.aligned_with(&gradient).unwrap_err().to_string();
    assert!(message.contains("Fortran order, but the gradient is in C order"), "{message}");
}

#[test]
fn the_first_difference_is_named() {
    let gradient = tensors(&[("a", &[3]), ("b", &[2])], true);
    for (infos, expected) in [
        (&[("a", &[3][..]), ("c", &[2])][..], "tensor \"b\" of the gradient is not among them"),
        (&[("a", &[3]), ("b", &[1, 2])], "tensor \"b\" has shape [1, 2], but the gradient's has [2]"),
        (&[("a", &[3]), ("b", &[2]), ("c", &[0])], "tensor \"c\" is not in the gradient"),
        (&[("a", &[3])], "tensor \"b\" of the gradient is not among them"),
    ] {
        assert_eq!(tensors(infos, true).aligned_with(&gradient).unwrap_err().to_string(), expected);
    }
    let other = tensors(&[("x", &[5])], true);
    let message = tensors(&[("y", &[5])], true).aligned_with(&other).unwrap_err().to_string();
    assert!(message.contains("\"x\""), "names of .safetensors files count: {message}");
}

#[test]
fn fortran_order_is_undone() {
    // The matrix [[0, 1, 2], [3, 4, 5]], first index fastest.
    assert_eq!(to_c_order(&[0., 3., 1., 4., 2., 5.], &[2, 3]), [0., 1., 2., 3., 4., 5.]);
    assert_eq!(to_c_order(&[7.], &[]), [7.]);
    assert_eq!(to_c_order(&[], &[0, 3]), [0.0; 0]);
    let shape = [2, 3, 4];
    let fortran: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let mut expected = Vec::new();
    for i in 0..2 {
        for j in 0..3 {
            for k in 0..4 {
                expected.push((i + 2 * j + 6 * k) as f32);
            }
        }
    }
    assert_eq!(to_c_order(&fortran, &shape), expected);
}

#[test]
fn only_countable_shapes_have_elements() {
    assert_eq!([elements(&[]), elements(&[2, 0, 3]), elements(&[4, 5])], [Some(1), Some(0), Some(20)]);
    assert_eq!([elements(&[usize::MAX, 2]), elements(&[usize::MAX, 2, 0])], [None, None]);
}
