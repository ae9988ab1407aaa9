//! What one step of one bucket came to.

use std::time::Duration;

/// The figures of one [`compress`](crate::pipeline::Compressor::compress).
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Report {
    /// Elements of the bucket.
    pub elements: usize,
    /// Of these, elements of layers that are sent dense.
    pub dense: usize,
    /// Coordinates the method was asked to send from the compressed layers.
    pub asked: usize,
    /// Coordinates it did send: the achieved k.
    pub kept: usize,
    /// Values in the frame, dense ones included.
    pub values: usize,
    /// Bytes of coordinates.
    pub index_bytes: usize,
    /// Bytes of values.
    pub value_bytes: usize,
    /// Of these, the bytes of layers that are sent dense.
    pub dense_bytes: usize,
    /// Of these, the bytes that are not in the frame: an all-reduce sums them.
    pub reduced_bytes: usize,
    /// Bytes of the whole message: the frame, and what is reduced beside it.
    pub frame_bytes: usize,
    /// Values clipped because they were beyond the range of their form.
    pub clipped: usize,
    /// Sum of squares of the accumulated gradient.
    pub energy: f64,
    /// Sum of squares of what was chosen of it, less that of what the codec loses of the values.
    pub energy_sent: f64,
    /// Time to accumulate, transform and select.
    pub select_time: Duration,
    /// Time to encode.
    pub encode_time: Duration,
}

impl Report {
    /// Adds the figures of another bucket.
    pub fn add(&mut self, other: &Report) {
        self.elements += other.elements;
        self.dense += other.dense;
        self.asked += other.asked;
        self.kept += other.kept;
        self.values += other.values;
        self.index_bytes += other.index_bytes;
        self.value_bytes += other.value_bytes;
        self.dense_bytes += other.dense_bytes;
        self.reduced_bytes += other.reduced_bytes;
        self.frame_bytes += other.frame_bytes;
        self.clipped += other.clipped;
        self.energy += other.energy;
        self.energy_sent += other.energy_sent;
        self.select_time += other.select_time;
        self.encode_time += other.encode_time;
    }

    /// Dense bytes over the bytes of the values alone.
    pub fn value_ratio(&self) -> f64 {
        4.0 * self.elements as f64 / (self.value_bytes as f64).max(f64::MIN_POSITIVE)
    }

    /// Dense bytes over all bytes on the wire.
    pub fn wire_ratio(&self) -> f64 {
        4.0 * self.elements as f64 / self.frame_bytes as f64
    }

    /// The compression gain: the share of the accumulated gradient's energy that was sent. What receivers miss of the
    /// accumulated gradient has the rest, so without a residual from before it is 1 less the square of the relative
    /// error. 1 for a gradient of zeros, of which nothing is missing.
    pub fn gain(&self) -> f64 {
        if self.energy == 0.0 { 1.0 } else { self.energy_sent / self.energy }
    }
}
