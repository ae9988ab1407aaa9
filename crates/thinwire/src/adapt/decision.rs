//! What was decided, and why.

use super::cost::Network;
use super::gain::LADDER;

/// What every rank must know of a decision: for each bucket which way it travels, and at which density.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// Counts the decisions, so that a message of another one is recognised.
    pub number: u32,
    /// For each bucket the number of its way, in the order of [`Limits::ways`](super::Limits::ways).
    pub ways: Vec<usize>,
    /// The density of all buckets that do not send everything; exactly what an `f32` can hold.
    pub density: f64,
}

/// Why something was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The training begins, or its buckets are new.
    Start,
    /// Latency or bandwidth changed.
    Network,
    /// The gains at the densities of the ladder were measured.
    Gain,
    /// A way turned out to take another time than was thought.
    Time,
    /// The warm-up came to another density.
    Warmup,
    /// The residual ran away.
    Residual,
}

/// A residual that runs away: what steps sent of it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Runaway {
    /// The share of the accumulated energy that a step sent, the mean over the last ones.
    pub sent: f64,
    /// The least that is enough.
    pub least: f64,
}

/// One decision of a controller, with everything it went by.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decision {
    /// The step after which it was made.
    pub step: u64,
    /// Its number, from 1.
    pub number: u32,
    /// Why.
    pub reason: Reason,
    /// The network, as measured.
    pub network: Network,
    /// Seconds of a step apart from synchronising: forward, backward, optimiser. 0 before any step.
    pub compute: f64,
    /// The ways that were chosen, and for how many buckets.
    pub ways: Vec<(String, usize)>,
    /// The density of those that do not send everything; 1 where all do.
    pub density: f64,
    /// The share of the gradient's energy that will be sent, as far as known.
    pub gain: f64,
    /// Seconds of synchronising that it is expected to take in each step.
    pub seconds: f64,
    /// Seconds that sending everything by `dense` would take, if that is allowed.
    pub dense_seconds: Option<f64>,
    /// The best that was not chosen, and its seconds.
    pub second: Option<(String, f64)>,
    /// The gains at the densities of the ladder, if they have been measured.
    pub gains: Option<[f64; LADDER.len()]>,
    /// What the steps sent, where the residual ran away.
    #[serde(default)]
    pub residual: Option<Runaway>,
    /// Whether anything differs from before.
    pub changes: bool,
}

impl Decision {
    /// How much of a whole step it saves against sending everything; below 0 if it takes longer.
    pub fn saves(&self) -> Option<f64> {
        let of = |dense: f64| (dense - self.seconds) / (self.compute + dense).max(f64::MIN_POSITIVE);
        self.dense_seconds.map(of)
    }

    /// Whether everything is sent.
    pub fn is_dense(&self) -> bool {
        self.ways.iter().all(|(way, _)| way.starts_with("dense") || way.starts_with("quantized"))
    }

    /// All of it as JSON, with the sentence as `text`.
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["saves"] = self.saves().into();
        value["text"] = self.to_string().into();
        value.to_string()
    }

    /// The ways in words.
    pub fn ways_in_words(&self) -> String {
        match &self.ways[..] {
            [(way, _)] => way.clone(),
            several => {
                let named = several.iter().map(|(way, buckets)| format!("{way} ({buckets} buckets)"));
                named.collect::<Vec<String>>().join(" and ")
            }
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
        let kept = if self.changes { "" } else { "still " };
        let computing = match self.compute > 0.0 {
            true => format!(", {} of computing", ms(self.compute)),
            false => String::new(),
        };
        f.write_str(match self.reason {
            Reason::Start => "start",
            Reason::Network => "the network changed",
            Reason::Gain => "gains measured",
            Reason::Time => "times measured",
            Reason::Warmup => "warm-up",
            Reason::Residual => "the residual runs away",
        })?;
        if let Some(Runaway { sent, least }) = self.residual {
            write!(f, ", steps sent {:.3} % of its energy, less than {:.3} %", 100.0 * sent, 100.0 * least)?;
        }
        write!(
            f,
            ": {:.4} Gbit/s, {}{computing}; {kept}{}",
            8e-9 / self.network.seconds_per_byte,
            ms(self.network.latency),
            self.ways_in_words(),
        )?;
        if !self.is_dense() {
            write!(f, " at {:.3} % (gain {:.2})", 100.0 * self.density, self.gain)?;
        }
        write!(f, ", {} a step", ms(self.seconds))?;
        let is_dense = self.ways.iter().all(|(way, _)| way.starts_with("dense"));
        if let (false, Some(dense), Some(saves)) = (is_dense, self.dense_seconds, self.saves()) {
            write!(f, ", dense {}: saves {:.0} % of a step", ms(dense), 100.0 * saves)?;
        }
        match &self.second {
            Some((way, seconds)) => write!(f, "; second best {way}, {}", ms(*seconds)),
            None => Ok(()),
        }
    }
}
