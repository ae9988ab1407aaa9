//! A method as data: which parts, with which settings.

use crate::adapt::Limits;
use crate::bucket::{Layer, LayerRules, matches_any};
use crate::codec::{IndexChoice, Quantizer, RangeFloat, Rounding, ValueForm};
use crate::exchange::Leaders;
use crate::kernels::Update;
use crate::memory::{Length, Progress, Warmup};
use crate::select::Select;
use crate::transform::TransformKind;
use crate::{Error, Result};

/// What a method is made of. A [`Compressor`](crate::pipeline::Compressor) runs any recipe.
#[derive(Debug)]
pub struct Recipe {
    /// The method and its parameters, as text that parses to this recipe.
    pub spec: String,
    /// The part of the elements to send, once warmed up.
    pub density: f64,
    /// How the density gets there.
    pub warmup: Warmup,
    /// Which layers are sent dense.
    pub rules: LayerRules,
    /// What is selected from as one vector.
    pub scope: Scope,
    /// The least density of the region of small matrices.
    pub fuse_density: f64,
    /// Whether what was not sent is kept for later.
    pub feedback: bool,
    /// Momentum correction.
    pub momentum: Momentum,
    /// Whether the momentum is cleared where something was sent (DGC's momentum factor masking). Without, and with a
    /// heavy ball, it is a local momentum: what arrives are sums of it, which an optimiser takes in place of its own.
    pub masking: bool,
    /// Local clipping: the norm of the local gradient is cut to this, times the root of the number of workers. What a
    /// worker gives to the mean is then at most this, divided by that root.
    pub clip: Option<f64>,
    /// What the vector is turned into before selection.
    pub transform: TransformKind,
    /// Rounds the accumulated gradient to half precision before the transform, as the FFT paper does.
    pub half_input: bool,
    /// Who selects; `None` sends everything.
    pub selector: Option<Box<dyn Select>>,
    /// How values travel.
    pub values: ValuePlan,
    /// Layers for which selector and values are others.
    pub exception: Option<Exception>,
    /// How coordinates travel.
    pub index: IndexChoice,
    /// How ranks combine what they have.
    pub exchange: Exchange,
    /// What a controller may choose, where the exchange is [`Automatic`](Exchange::Automatic).
    pub limits: Option<Limits>,
}

/// What is selected from as one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All compressed layers of the bucket together.
    Bucket,
    /// Each layer by itself.
    Layer,
}

/// Momentum correction: the momentum is applied before selection, and cleared where something was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Momentum {
    /// Left to the optimiser.
    Off,
    /// Heavy ball, with this coefficient.
    HeavyBall(f32),
    /// Nesterov's form.
    Nesterov(f32),
}

/// How values travel, before the values are known.
#[derive(Debug, Clone, PartialEq)]
pub enum ValuePlan {
    /// One form for all messages.
    Fixed(ValueForm),
    /// Range-based floats over a range measured for each message.
    Covering {
        /// Bits of a value.
        bits: u8,
        /// Bits of its mantissa.
        mantissa: u8,
        /// How it is rounded.
        rounding: Rounding,
    },
    /// One mean for all values of a unit, whose selector sends one sign at a time. The differences to the mean
    /// are dropped, as in RedSync.
    SameSign,
}

/// Layers that are selected and coded in another way than the rest. The region of small matrices is always among them.
#[derive(Debug)]
pub struct Exception {
    /// Patterns of their names. Without any it is the layers marked as the model's output layer
    /// ([`Layer::is_output`](crate::bucket::Layer::is_output)).
    pub layers: Vec<String>,
    /// Who selects there.
    pub selector: Box<dyn Select>,
    /// How their values travel.
    pub values: ValuePlan,
}

impl Exception {
    /// Whether it is one for this layer.
    pub fn covers(&self, layer: &Layer) -> bool {
        match &self.layers[..] {
            [] => layer.is_output(),
            patterns => matches_any(patterns, layer.name()),
        }
    }
}

impl ValuePlan {
    /// The form for these values.
    pub fn form(&self, values: &[f32]) -> Result<ValueForm> {
        match self {
            ValuePlan::Fixed(form) => Ok(*form),
            &ValuePlan::Covering { bits, mantissa, rounding } => {
                Ok(ValueForm::Range(RangeFloat::covering(bits, mantissa, values, rounding)?))
            }
            ValuePlan::SameSign => Ok(ValueForm::SameSign),
        }
    }

    /// The form of layers that are sent dense: of the width asked for.
    pub fn dense_form(&self) -> ValueForm {
        match self {
            ValuePlan::Fixed(form @ (ValueForm::F16 | ValueForm::Bf16 | ValueForm::Quantized(_))) => *form,
            _ => ValueForm::F32,
        }
    }

    /// Whether what the codec loses is kept for later. RedSync drops it.
    pub fn keeps_loss(&self) -> bool {
        !matches!(self, ValuePlan::SameSign)
    }
}

/// How ranks combine what they have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exchange {
    /// All-reduce of everything.
    Dense,
    /// Every rank sends its own coordinates to all.
    Gathered,
    /// Everything, in a few bits: to the owner of its shard, and the sum from there to all.
    Quantized(Quantizer),
    /// Leaders name the coordinates, and all ranks reduce there.
    Agreed(Leaders),
    /// A controller chooses one of the others for each bucket, and changes it as network and gradients change.
    Automatic,
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Exchange::Dense => "dense",
            Exchange::Gathered => "gathered",
            Exchange::Quantized(_) => "quantized",
            Exchange::Agreed(_) => "agreed",
            Exchange::Automatic => "automatic",
        })
    }
}

impl Recipe {
    /// How the gradient enters the memory.
    pub fn update(&self) -> Update {
        match (self.feedback, self.momentum) {
            (false, _) => Update::Replace,
            (true, Momentum::Off) => Update::Add,
            (true, Momentum::HeavyBall(coefficient)) => Update::HeavyBall(coefficient),
            (true, Momentum::Nesterov(coefficient)) => Update::Nesterov(coefficient),
        }
    }

    /// The same in a step in which everything is sent (`full`) or not. A full step does not take part in a local momentum:
    /// the optimiser, which gets the mean of whole gradients then, has one of its own.
    pub(crate) fn update_in(&self, full: bool) -> Update {
        if full && !self.masking && self.feedback { Update::Add } else { self.update() }
    }

    /// Whether something is kept from step to step.
    pub fn remembers(&self) -> bool {
        self.selector.is_some() || matches!(self.exchange, Exchange::Quantized(_))
    }

    /// Whether the selector ranks by weights too, so that every step must bring them.
    pub fn needs_weights(&self) -> bool {
        let may = |method: &String| crate::method::parse(method).is_ok_and(|recipe| recipe.needs_weights());
        self.selector.as_ref().is_some_and(|selector| selector.needs_weights())
            || self.limits.as_ref().is_some_and(|limits| limits.methods.iter().any(may))
    }

    /// The form of layers that are sent dense. Where values are quantised by sign it is that of the layers exempt from it.
    pub fn dense_form(&self) -> ValueForm {
        match (&self.values, &self.exception) {
            (ValuePlan::SameSign, Some(exception)) => exception.values.dense_form(),
            (values, _) => values.dense_form(),
        }
    }

    /// Refuses a method that leaves open how it travels: only a group of ranks can find that out.
    pub(crate) fn check_fixed(&self) -> Result<()> {
        match self.exchange {
            Exchange::Automatic => Err(Error::BadSetting {
                name: "the method".into(),
                found: self.spec.clone(),
                expected: "one that compresses by itself, such as topk: auto chooses for ranks that train"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a warm-up given as a part of the run if the length of the run is unknown.
    pub(crate) fn check_length_known(&self, progress: Progress) -> Result<()> {
        match self.warmup.length() {
            Some(Length::Part(_)) if progress.total_steps.is_none() => Err(Error::BadParameter {
                method: self.spec.clone(),
                name: "warmup".into(),
                value: self.warmup.to_string(),
                expected: "the steps of the whole run to be known (Options::total_steps), or a length in steps or epochs"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses parts that do not go together.
    pub fn check(&self) -> Result<()> {
        if !self.feedback && self.momentum != Momentum::Off {
            return Err(Error::BadParameter {
                method: self.spec.clone(),
                name: "momentum".into(),
                value: format!("{:?}", self.momentum),
                expected: "0 without feedback: momentum correction works on what is kept".into(),
            });
        }
        let quantized = matches!(self.warmup, Warmup::Quantized { .. });
        // A local momentum begins after the warm-up, in which the optimiser has one of its own.
        let local = self.feedback && !self.masking;
        if quantized && self.update() != Update::Add && !local {
            return Err(Error::BadParameter {
                method: self.spec.clone(),
                name: "warmup".into(),
                value: self.warmup.to_string(),
                expected: "dense/LENGTH where feedback is false or momentum is corrected: a quantised warm-up keeps \
                           its rounding errors in a plain residual (with masking=false it is allowed, for an optimiser \
                           that takes over the momentum)"
                    .into(),
            });
        }
        // Sums are made on the way, so whatever travels must be a number that can be added.
        let whole_floats = matches!(self.values, ValuePlan::Fixed(form) if form.precision().is_some());
        let identity = self.transform == TransformKind::Identity;
        if matches!(self.exchange, Exchange::Agreed(_)) && !(whole_floats && identity) {
            return Err(Error::BadParameter {
                method: self.spec.clone(),
                name: "exchange".into(),
                value: "agreed".into(),
                expected: "gathered: sums on the way need f32, f16 or bf16 values and no transform".into(),
            });
        }
        Ok(())
    }
}
