//! Everything that can go wrong at the edge of this crate, each with the values that disagreed.

/// The error of every fallible function in this crate.
///
/// ```
/// use thinwire::{Bucket, Error};
/// let twice = Bucket::new(0, [("w", vec![2]), ("w", vec![3])]);
/// assert!(matches!(twice, Err(Error::DuplicateLayer { name }) if name == "w"));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- bucket ----
    /// Two layers of a bucket share a name, so their state could not be told apart.
    #[error(
        "layer {name:?} appears twice in the bucket; state is kept by name, so every layer needs its own"
    )]
    DuplicateLayer {
        /// The name that appears twice.
        name: String,
    },
    /// A bucket has more elements than a 32-bit index can name.
    #[error("a bucket of {elements} elements is too long: indices are 32-bit, split it at {limit} elements")]
    BucketTooLong {
        /// What was asked for.
        elements: u64,
        /// The most a bucket can hold.
        limit: u64,
    },
    /// A vector does not have the bucket's length.
    #[error("{what} has {found} elements, but the bucket has {expected}")]
    LengthMismatch {
        /// Which vector: gradient, weights, output.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The bucket's length.
        expected: usize,
    },
    /// A NaN or an infinity, or a sum that overflows to one, was found before it reached a residual.
    #[error("{what} holds {value} in layer {layer:?} at element {index}; nothing was sent")]
    NonFinite {
        /// Which vector: gradient or weights.
        what: &'static str,
        /// The layer it is in.
        layer: String,
        /// The element inside that layer.
        index: usize,
        /// The offending value.
        value: f32,
    },
    /// A method that ranks by |gradient| / |weight| was not given the weights.
    #[error("method {method:?} ranks by |gradient| / |weight| and needs the weights, but none were given")]
    WeightsMissing {
        /// The method's name.
        method: String,
    },

    // ---- method ----
    /// No method has this name.
    #[error("unknown method {name:?}; the methods are: {known}")]
    UnknownMethod {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The method has no parameter of this name.
    #[error("{method} has no parameter {name:?}; its parameters are: {known}")]
    UnknownParameter {
        /// The method.
        method: String,
        /// What was given.
        name: String,
        /// The names it has.
        known: String,
    },
    /// A parameter's value does not fit.
    #[error("{method}: parameter {name}={value} is not right; expected {expected}")]
    BadParameter {
        /// The method.
        method: String,
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What would be right.
        expected: String,
    },

    // ---- codec: everything a decoder can say of bytes it was handed ----
    /// The bytes end before the field does.
    #[error("the frame ends inside {field}: {needed} bytes needed, {left} left")]
    Truncated {
        /// What was being read.
        field: &'static str,
        /// Bytes the field needs.
        needed: u64,
        /// Bytes there are.
        left: u64,
    },
    /// A field holds something it can't.
    #[error("the frame's {field} is {found}; expected {expected}")]
    BadField {
        /// Which field.
        field: &'static str,
        /// What it held.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The checksum is not the one of the bytes.
    #[error("the frame is damaged: its checksum says {stored:08x}, its bytes say {computed:08x}")]
    Checksum {
        /// The checksum in the frame.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A frame of another step, plan, bucket or length than the receiver is at.
    #[error("the frame is for {field} {found}, but this rank is at {field} {expected}")]
    OutOfStep {
        /// step, plan, bucket or elements.
        field: &'static str,
        /// What the frame carries.
        found: u64,
        /// What the receiver expects.
        expected: u64,
    },
    /// Values that the value form can't carry.
    #[error("the value form {form} can't carry {found}; expected {expected}")]
    BadValues {
        /// The value form.
        form: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        expected: String,
    },

    // ---- group ----
    /// A setting from the environment or the command line can't be used.
    #[error("{name} is {found:?}; expected {expected}")]
    BadSetting {
        /// The variable or option.
        name: String,
        /// What it held.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The ranks did not find each other.
    #[error("rank {rank} could not join the group: {reason}")]
    Rendezvous {
        /// This rank.
        rank: usize,
        /// Who was missing, or what went wrong.
        reason: String,
    },
    /// The connection to a rank broke: it died, or left.
    #[error("step {step}: lost rank {rank} during {during}: {reason}")]
    PeerLost {
        /// The rank.
        rank: usize,
        /// The step this rank was in.
        step: u64,
        /// The collective this rank was in.
        during: String,
        /// What the system said.
        reason: String,
    },
    /// A rank did not answer in time.
    #[error("step {step}: no word from rank {rank} during {during} for {seconds} s")]
    PeerSilent {
        /// The rank that was missing.
        rank: usize,
        /// The step this rank was in.
        step: u64,
        /// The collective this rank was in.
        during: String,
        /// The deadline.
        seconds: f64,
    },
    /// A rank is at another collective, step or plan, or speaks another language.
    #[error("step {step}: rank {rank} disagrees: {field} is {found} there and {expected} here")]
    Disagreement {
        /// The other rank.
        rank: usize,
        /// The step this rank was in.
        step: u64,
        /// What differs.
        field: &'static str,
        /// What the other rank has.
        found: String,
        /// What this rank has.
        expected: String,
    },
    /// Another rank gave the group up, and said why.
    #[error("step {step}: rank {rank} gave up{}: {reason}", because_of(*culprit, *rank))]
    PeerGaveUp {
        /// The rank that gave up.
        rank: usize,
        /// The rank whose fault it was, as far as the other knew; itself, if it gave the reason in words only.
        culprit: usize,
        /// The step this rank was in.
        step: u64,
        /// Its error.
        reason: String,
    },
    /// The group has failed before; it can't be used any more.
    #[error("the group of ranks was given up: {reason}")]
    GroupLost {
        /// The first error.
        reason: String,
    },

    // ---- exchange ----
    /// A rank sent something that can't be decoded, or that belongs elsewhere.
    #[error("step {step}: rank {rank} sent a message that can't be used: {reason}")]
    BadMessage {
        /// The rank.
        rank: usize,
        /// The step.
        step: u64,
        /// What the decoder said.
        reason: String,
    },
    /// A rank could not take part in the step. All ranks have skipped it and keep what they had, but for rounding;
    /// the group works on.
    #[error("step {step} was skipped by all ranks: rank {rank}: {reason}")]
    Skipped {
        /// The rank.
        rank: usize,
        /// The step.
        step: u64,
        /// Its error.
        reason: String,
    },
    /// A bucket that the layout does not have.
    #[error("bucket {found} was submitted; the layout has buckets 0 to {last}")]
    UnknownBucket {
        /// The bucket.
        found: usize,
        /// The last one there is.
        last: usize,
    },
    /// A bucket was submitted again before the step was over.
    #[error("bucket {bucket} was submitted twice in step {step}; wait for the step to end first")]
    SubmittedTwice {
        /// The bucket.
        bucket: usize,
        /// The step.
        step: u64,
    },
    /// Something was asked for that has to wait until the step is over.
    #[error(
        "step {step} is under way with {submitted} of {buckets} buckets submitted; submit the others and wait"
    )]
    StepUnderWay {
        /// The step.
        step: u64,
        /// Buckets submitted.
        submitted: usize,
        /// Buckets there are.
        buckets: usize,
    },
    /// The gradients or weights handed over are not one for each bucket.
    #[error("{found} vectors of {what} were given for {buckets} buckets")]
    BucketCount {
        /// Gradients or weights.
        what: &'static str,
        /// How many were given.
        found: usize,
        /// Buckets there are.
        buckets: usize,
    },
    /// Replicas that must be equal are not.
    #[error("step {step}: {what} differ between the ranks: {values}")]
    ReplicasDiffer {
        /// The step.
        step: u64,
        /// Weights or mean gradients.
        what: &'static str,
        /// The checksum of each rank.
        values: String,
    },

    // ---- kernels ----
    /// The device on which the arithmetic runs has failed. What it holds can't be relied on any more.
    #[error("the device can't {action}: {reason}")]
    Device {
        /// What it was to do.
        action: &'static str,
        /// What its driver said.
        reason: String,
    },

    // ---- state ----
    /// A saved state does not fit what it is loaded into.
    #[error("state {path}: {field} is {found}; expected {expected}")]
    BadState {
        /// The file, or "(memory)".
        path: String,
        /// The tensor or entry.
        field: String,
        /// What it held.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The operating system said no.
    #[error("can't {action} {path}: {reason}")]
    Io {
        /// read, write, …
        action: &'static str,
        /// The file.
        path: String,
        /// The system's words.
        reason: String,
    },
}

/// Whose fault it was that `rank` gave up; nothing if the reason has to say.
fn because_of(culprit: usize, rank: usize) -> String {
    if culprit == rank { String::new() } else { format!(" because of rank {culprit}") }
}

/// The result of every fallible function in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
