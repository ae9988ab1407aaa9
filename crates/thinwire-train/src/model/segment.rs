//! A piece of a model whose weights and gradients can be read and written as one flat run of numbers.
//!
//! The framework has no hook that tells when a gradient is ready. So the model is cut into segments: at each border
//! the graph ends, and the backward pass of a segment starts from the gradient at the border behind it. The results
//! are the same as without the cuts, and each segment's gradients are there as soon as its own pass is over.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Int, Tensor, TensorData};

/// What flows from segment to segment.
#[derive(Debug, Clone)]
pub enum Flow {
    /// Samples, channels, rows, columns.
    Images(Tensor<4>),
    /// Samples or tokens, features.
    Features(Tensor<2>),
    /// Samples, tokens, features.
    Sequence(Tensor<3>),
    /// Samples, tokens.
    Tokens(Tensor<2, Int>),
}

impl Flow {
    /// Samples, channels, rows, columns.
    ///
    /// # Panics
    /// Like its siblings: when something else flows, which is a mistake in the model.
    pub fn images(self) -> Tensor<4> {
        match self {
            Flow::Images(images) => images,
            other => panic!("the segment takes images, not {other:?}"),
        }
    }

    /// Rows of features.
    pub fn features(self) -> Tensor<2> {
        match self {
            Flow::Features(features) => features,
            other => panic!("the segment takes features, not {other:?}"),
        }
    }

    /// Sequences of features.
    pub fn sequence(self) -> Tensor<3> {
        match self {
            Flow::Sequence(sequence) => sequence,
            other => panic!("the segment takes a sequence, not {other:?}"),
        }
    }

    /// Tokens.
    pub fn tokens(self) -> Tensor<2, Int> {
        match self {
            Flow::Tokens(tokens) => tokens,
            other => panic!("the segment takes tokens, not {other:?}"),
        }
    }

    /// The same values at the beginning of a graph of their own, which will tell their gradient.
    pub fn cut(self) -> Flow {
        match self {
            Flow::Images(images) => Flow::Images(images.detach().require_grad()),
            Flow::Features(features) => Flow::Features(features.detach().require_grad()),
            Flow::Sequence(sequence) => Flow::Sequence(sequence.detach().require_grad()),
            Flow::Tokens(tokens) => Flow::Tokens(tokens),
        }
    }

    /// The gradient at a [`cut`](Flow::cut).
    pub fn gradient(&self, gradients: &Gradients) -> Option<Flow> {
        match self {
            Flow::Images(images) => images.grad(gradients).map(Flow::Images),
            Flow::Features(features) => features.grad(gradients).map(Flow::Features),
            Flow::Sequence(sequence) => sequence.grad(gradients).map(Flow::Sequence),
            Flow::Tokens(_) => None,
        }
    }

    /// The backward pass of the graph that ends here, from the gradient `upstream` of what follows.
    ///
    /// # Panics
    /// When `upstream` is of another shape.
    pub fn backward(self, upstream: Flow) -> Gradients {
        // The gradient of this sum with respect to the values is `upstream`.
        match (self, upstream) {
            (Flow::Images(values), Flow::Images(upstream)) => dot(values, upstream),
            (Flow::Features(values), Flow::Features(upstream)) => dot(values, upstream),
            (Flow::Sequence(values), Flow::Sequence(upstream)) => dot(values, upstream),
            (values, upstream) => panic!("the gradient of {values:?} can't be {upstream:?}"),
        }
    }
}

fn dot<const D: usize>(values: Tensor<D>, upstream: Tensor<D>) -> Gradients {
    values.mul(upstream.autodiff()).sum().backward()
}

/// What a segment computes.
pub trait Forward {
    /// The forward pass.
    fn forward(&self, input: Flow) -> Flow;
}

/// A piece of a model.
pub trait Segment: Send {
    /// The forward pass.
    fn forward(&self, input: Flow) -> Flow;
    /// Name and shape of each weight tensor, in the order in which they lie in flat runs.
    fn weights(&self) -> Vec<(String, Vec<usize>)>;
    /// Adds the weights to `flat`.
    fn read(&self, flat: &mut Vec<f32>);
    /// Sets the weights.
    ///
    /// # Panics
    /// When `flat` is of another length.
    fn write(&mut self, flat: &[f32]);
    /// Adds the gradients to `flat`; those of weights that took no part are 0.
    fn gradients(&self, gradients: &mut Gradients, flat: &mut Vec<f32>);
    /// Name and shape of what is not trained but measured: running statistics.
    fn statistics(&self) -> Vec<(String, Vec<usize>)>;
    /// Adds these to `flat`.
    fn read_statistics(&self, flat: &mut Vec<f32>);
    /// Sets these.
    ///
    /// # Panics
    /// When `flat` is of another length.
    fn write_statistics(&mut self, flat: &[f32]);
    /// The same segment for measuring: no graph is made, and running statistics are used.
    fn measuring(&self) -> Box<dyn Segment>;
}

/// A module of the framework as a segment.
#[derive(Debug)]
pub struct Part<M> {
    name: String,
    /// Only ever absent while its weights are exchanged for others.
    module: Option<M>,
}

impl<M: Module + Forward + Sync + 'static> Part<M> {
    /// A segment whose weights are called `name.` and what the module calls them.
    pub fn boxed(name: impl Into<String>, module: M) -> Box<dyn Segment> {
        Box::new(Part { name: name.into(), module: Some(module) })
    }

    fn module(&self) -> &M {
        self.module.as_ref().expect("the module is only absent inside `map`")
    }

    fn visit(&self, trained: bool, see: impl FnMut(Seen<'_>)) {
        let path = vec![self.name.clone()];
        self.module().visit(&mut Visitor { trained, path, see });
    }

    fn map(&mut self, trained: bool, flat: &[f32]) {
        let module = self.module.take().expect("the module is only absent inside `map`");
        let mut writer = Writer { trained, flat };
        self.module = Some(module.map(&mut writer));
        assert!(writer.flat.is_empty(), "{}: {} values too many", self.name, writer.flat.len());
    }
}

impl<M: Module + Forward + Sync + 'static> Segment for Part<M> {
    fn forward(&self, input: Flow) -> Flow {
        self.module().forward(input)
    }

    fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        self.visit(true, |seen| all.push((seen.name.to_owned(), seen.shape.to_vec())));
        all
    }

    fn read(&self, flat: &mut Vec<f32>) {
        self.visit(true, |seen| flat.extend_from_slice(&(seen.values)()));
    }

    fn write(&mut self, flat: &[f32]) {
        self.map(true, flat);
    }

    fn gradients(&self, gradients: &mut Gradients, flat: &mut Vec<f32>) {
        self.module().visit(&mut GradientReader { gradients, flat });
    }

    fn statistics(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        self.visit(false, |seen| all.push((seen.name.to_owned(), seen.shape.to_vec())));
        all
    }

    fn read_statistics(&self, flat: &mut Vec<f32>) {
        // The framework keeps the last update aside until this is asked for.
        let _ = self.module().valid();
        self.visit(false, |seen| flat.extend_from_slice(&(seen.values)()));
    }

    fn write_statistics(&mut self, flat: &[f32]) {
        let _ = self.module().valid();
        self.map(false, flat);
    }

    fn measuring(&self) -> Box<dyn Segment> {
        Box::new(Part { name: self.name.clone(), module: Some(self.module().valid()) })
    }
}

/// A tensor of a module.
struct Seen<'a> {
    name: &'a str,
    shape: &'a [usize],
    values: &'a dyn Fn() -> Vec<f32>,
}

struct Visitor<See> {
    /// Whether to see what is trained, or what is not.
    trained: bool,
    path: Vec<String>,
    see: See,
}

impl<See: FnMut(Seen<'_>)> ModuleVisitor for Visitor<See> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() == self.trained {
            let (name, shape) = (self.path.join("."), param.lazy_shape());
            (self.see)(Seen { name: &name, shape: &shape.dims::<D>(), values: &|| numbers(param.val()) });
        }
    }
}

struct GradientReader<'a> {
    gradients: &'a mut Gradients,
    flat: &'a mut Vec<f32>,
}

impl ModuleVisitor for GradientReader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() {
            return;
        }
        match param.val().grad_remove(self.gradients) {
            Some(gradient) => extend(self.flat, gradient),
            None => self.flat.resize(self.flat.len() + param.lazy_shape().num_elements(), 0.0),
        }
    }
}

struct Writer<'a> {
    trained: bool,
    /// What is not yet written.
    flat: &'a [f32],
}

impl ModuleMapper for Writer<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_require_grad() != self.trained {
            return param;
        }
        let (own, rest) = self.flat.split_at(param.lazy_shape().num_elements());
        self.flat = rest;
        let trained = self.trained;
        param.map(|old| {
            let data = TensorData::new(own.to_vec(), old.shape());
            Tensor::<D>::from_data(data, &old.device()).set_require_grad(trained)
        })
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let mut flat = Vec::new();
    extend(&mut flat, tensor);
    flat
}

fn extend<const D: usize>(flat: &mut Vec<f32>, tensor: Tensor<D>) {
    let data = tensor.into_data();
    let values = data.as_slice::<f32>().expect("all weights are f32");
    flat.extend_from_slice(values);
}
