//! How a gradient enters the memory, and how what comes of it is ranked.

/// How an element of the accumulated vector `u` is ranked. A score is never negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// `|u|`.
    Magnitude,
    /// `u` where it is positive; other elements can't be chosen (RedSync's top side).
    Positive,
    /// `-u` where it is negative; other elements can't be chosen (RedSync's bottom side).
    Negative,
    /// `|u| / max(|w|, guard)`, the importance of IWP.
    Relative {
        /// Below this a weight counts as this: keeps zero weights from winning every step.
        guard: f32,
    },
}

/// How the gradient `g` (times `scale`) enters the memory: residual `r`, momentum `m`.
///
/// Products and sums are rounded one by one, never fused, so that every device gives the same bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update {
    /// `u = r`: nothing enters; the residual is only looked at, and the gradient may be empty.
    Keep,
    /// `u = r + g`: error feedback.
    Add,
    /// `u = g`: no feedback; the residual only serves as a work space.
    Replace,
    /// `m = c·m + g; u = r + m`: momentum correction, heavy ball.
    HeavyBall(f32),
    /// `m = c·(m + g); u = r + (m + g)`: momentum correction, Nesterov.
    Nesterov(f32),
}

/// The vectors of one bucket that a walk touches, and what it does with them: gradients of kind `G`, memory of
/// kind `V`.
#[derive(Debug)]
pub struct Walk<'a, G: ?Sized, V: ?Sized> {
    /// The local gradient of this step.
    pub gradient: &'a G,
    /// What was not sent before; holds the accumulated vector `u` afterwards.
    pub residual: &'a mut V,
    /// The momentum, for the updates that have one.
    pub momentum: Option<&'a mut V>,
    /// The weights, for [`Score::Relative`].
    pub weights: Option<&'a G>,
    /// How the gradient enters.
    pub update: Update,
    /// A factor on the gradient: clipping, or the share of this rank in a weighted mean.
    pub scale: f32,
    /// How elements are ranked.
    pub score: Score,
}

impl<'a, G: ?Sized, V: ?Sized> Walk<'a, G, V> {
    /// Plain error feedback: `u = r + g`, ranked by magnitude.
    pub fn new(gradient: &'a G, residual: &'a mut V) -> Walk<'a, G, V> {
        Walk {
            gradient,
            residual,
            momentum: None,
            weights: None,
            update: Update::Add,
            scale: 1.0,
            score: Score::Magnitude,
        }
    }
}
