//! What is measured and not trained.

use super::*;

fn read_statistics(segments: &[Box<dyn Segment>]) -> Vec<f32> {
    let mut flat = Vec::new();
    segments.iter().for_each(|segment| segment.read_statistics(&mut flat));
    flat
}

#[test]
fn statistics_come_back_as_they_were_written_and_are_not_weights() {
    for &(spec, kind, _) in CASES {
        let mut segments = model(spec, kind, 14);
        let weights = read(&segments);
        let shapes: Vec<_> = segments.iter().flat_map(|segment| segment.statistics()).collect();
        assert_eq!(shapes.is_empty(), !spec.starts_with("resnet"), "{spec}: {shapes:?}");
        assert!(shapes.iter().all(|(name, _)| name.contains("running_")), "{shapes:?}");
        // Something is pending when others are written.
        let (input, targets) = tensors(kind, 4, 15);
        step(&segments, input, targets);
        let mut written = Vec::new();
        for (number, segment) in segments.iter_mut().enumerate() {
            let mut own = Vec::new();
            segment.read_statistics(&mut own);
            own.iter_mut().enumerate().for_each(|(index, x)| *x = 0.5 + number as f32 + 0.01 * index as f32);
            segment.write_statistics(&own);
            written.extend(own);
        }
        let length = shapes.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>();
        assert_eq!(written.len(), length, "{spec}");
        assert_eq!(read_statistics(&segments), written, "{spec}");
        assert_eq!(read(&segments), weights, "{spec}");
    }
}

#[test]
fn running_statistics_move_a_tenth_of_the_way_whichever_thread_takes_the_step() {
    let mut segments = model("resnet:depth=8", COLOURS, 16);
    let (input, targets) = tensors(COLOURS, 6, 17);
    let before = read_statistics(&segments);
    step(&segments, input.clone(), targets.clone());
    let once = read_statistics(&segments);
    assert!(once.iter().zip(&before).all(|(once, before)| once != before), "all have moved");
    // With the same weights and data each step measures the same, so the way that is left shrinks by a tenth.
    let there: Vec<f32> =
        before.iter().zip(&once).map(|(before, once)| before + 10.0 * (once - before)).collect();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let (input, targets, segments) = (input.clone(), targets.clone(), &mut segments);
            scope.spawn(move || step(segments, input, targets));
        });
    }
    for ((found, before), there) in read_statistics(&segments).iter().zip(&before).zip(&there) {
        let expected = there + 0.9f32.powi(4) * (before - there);
        assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{found} against {expected}");
    }
}

#[test]
fn measuring_uses_the_running_statistics() {
    let mut segments = model("resnet:depth=8", COLOURS, 18);
    let (input, targets) = tensors(COLOURS, 6, 19);
    let measure = |segments: &[Box<dyn Segment>]| {
        let measuring: Vec<_> = segments.iter().map(|segment| segment.measuring()).collect();
        pass::evaluate(&measuring, input.clone(), targets.clone()).0 / 6.0
    };
    let fresh = measure(&segments);
    let (trained, _) = step(&segments, input.clone(), targets.clone());
    assert_ne!(measure(&segments), fresh, "the step has moved the statistics");
    // When they are those of this very batch, measuring gives the loss of training.
    for _ in 0..150 {
        step(&segments, input.clone(), targets.clone());
    }
    let settled = measure(&segments);
    assert!((settled - f64::from(trained)).abs() < 1e-4, "{settled} against {trained}");
    // Measuring itself leaves them alone.
    assert_eq!(measure(&segments), settled);
    let length = segments[0].statistics().iter().map(|(_, shape)| shape[0]).sum();
    segments[0].write_statistics(&vec![3.0; length]);
    assert_ne!(measure(&segments), settled);
}
