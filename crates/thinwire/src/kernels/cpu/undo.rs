//! Takes a gradient back out of the memory after a walk that found a non-finite value.
//!
//! Only what had been written is undone. The result is the memory as it was before, but for the rounding
//! of the addition and of the subtraction that undoes it; a caller who must have the same bits asks
//! [`Kernels::statistics`](crate::kernels::Kernels::statistics) about the gradient first.

use std::ops::Range;

use super::spread::{Part, View};
use crate::kernels::Update;

/// Undoes what the parts of a stopped walk had written.
pub(super) fn undo(mut view: View<'_>, update: Update, scale: f32, tiles: &[Range<usize>], parts: &[Part]) {
    for part in parts {
        for number in part.tiles.clone() {
            let tile = tiles[number].clone();
            let written = match (number - part.tiles.start).cmp(&part.finished) {
                std::cmp::Ordering::Less => tile.len(),
                std::cmp::Ordering::Equal => part.stop.map_or(0, |stop| stop.written),
                std::cmp::Ordering::Greater => 0,
            };
            undo_range(&mut view, update, scale, tile.start..tile.start + written);
        }
    }
}

/// Undoes one range of a walk.
pub(super) fn undo_range(view: &mut View<'_>, update: Update, scale: f32, range: Range<usize>) {
    if update == Update::Keep {
        return;
    }
    for i in range {
        take_out(view.gradient[i] * scale, &mut view.residual[i], view.momentum.get_mut(i), update);
    }
}

fn take_out(gradient: f32, residual: &mut f32, momentum: Option<&mut f32>, update: Update) {
    // With a coefficient of 0 the old momentum had no influence; 0 is as good as any.
    let divide = |x: f32, c: f32| if c == 0.0 { 0.0 } else { x / c };
    match (update, momentum) {
        (Update::Keep, _) => unreachable!("nothing had entered"),
        (Update::Add, _) => *residual -= gradient,
        (Update::Replace, _) => *residual = 0.0,
        (Update::HeavyBall(c), Some(momentum)) => {
            *residual -= *momentum;
            *momentum = divide(*momentum - gradient, c);
        }
        (Update::Nesterov(c), Some(momentum)) => {
            *residual -= *momentum + gradient;
            *momentum = divide(*momentum, c) - if c == 0.0 { 0.0 } else { gradient };
        }
        (Update::HeavyBall(_) | Update::Nesterov(_), None) => unreachable!("the walk had a momentum"),
    }
}
