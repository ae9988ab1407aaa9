"""The hook of DistributedDataParallel."""

import gc
import time
import weakref
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from thinwire._method import Value
from thinwire.errors import BadArgument, Error, StepSkipped
from thinwire.torch._bucket import Bucket, fill, layer_of, obstacle
from thinwire.torch._core import Core
from thinwire.torch._device import one_device
from thinwire.torch._names import by_parameter
from thinwire.torch._options import Mean, Options, RunAhead, Timeout, method_with_defaults
from thinwire.torch._trial import DENSE, Trial
from thinwire.torch._uncompressed import Uncompressed
from thinwire.torch._undelivered import Undelivered

#: Calls a function when the backward pass that is under way ends, after those that were queued before.
_at_end_of_backward = torch.autograd.Variable._execution_engine.queue_callback


class HookState(Core):
    """The state of :func:`hook`, for ``ddp.register_comm_hook(state, tw.hook)`` and for trainers that register hooks
    themselves; :func:`compress` makes one and registers it.

    ``model`` gives parameters their names, by which states are kept; without it they are numbered in the order in which
    DDP first shows them. Everything else is as in :func:`compress`. Every DDP model needs a state of its own.
    """

    #: Where names come from, if a model was given.
    _model: "Optional[weakref.ref[torch.nn.Module]]" = None
    #: Whether the method is the default one, which dense steps may replace, and the trial of that.
    _falls_back = False
    _trial: Optional[Trial] = None

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        method: Optional[str] = None,
        density: Optional[float] = None,
        *,
        process_group: Optional[dist.ProcessGroup] = None,
        timeout: Timeout = None,
        scaler: Optional[GradScaler] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        mean: Mean = "ranks",
        steps_per_epoch: Optional[float] = None,
        total_steps: Optional[int] = None,
        threads: Optional[int] = None,
        check_replicas_every: int = 100,
        run_ahead: RunAhead = False,
        **parameters: Value,
    ) -> None:
        if model is not None and not isinstance(model, torch.nn.Module):
            raise BadArgument(f"model is a {type(model).__name__}; expected a torch.nn.Module")
        ddp = model if isinstance(model, DistributedDataParallel) else None
        options = Options(
            process_group=ddp.process_group if process_group is None and ddp is not None else process_group,
            timeout=timeout,
            scaler=scaler,
            optimizer=optimizer,
            mean=mean,
            steps_per_epoch=steps_per_epoch,
            total_steps=total_steps,
            threads=threads,
            check_replicas_every=check_replicas_every,
            run_ahead=run_ahead,
        )
        self._falls_back = method is None and not parameters
        text = method_with_defaults(method, density, parameters, options)
        super().__init__(_names(model), text, options, self._falls_back)
        self._model = None if model is None else weakref.ref(model)
        self._observe(model)

    def _observe(self, model: Optional[torch.nn.Module]) -> None:
        ddp = model if isinstance(model, DistributedDataParallel) else None
        self._sparse = set() if model is None else _sparse_parameters(model)
        #: The model, where it is known. Weak: it owns the reducer, which owns this.
        self._ddp: "Optional[weakref.ref[DistributedDataParallel]]" = None if ddp is None else weakref.ref(ddp)
        if ddp is not None and ddp.find_unused_parameters and not ddp.static_graph:
            self._undelivered = Undelivered(ddp, self._names)
            self._engine.undelivered = self._undelivered
        #: Whether DDP skips buckets without a parameter that is used in this step.
        self._skips = bool(ddp is not None and getattr(ddp, "skip_all_reduce_unused_params", False))
        self._begin_trial()
        self._searched = ddp is not None
        self._futures: "list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]]" = []
        #: The index of DDP's next bucket, and whether the last one has come.
        self._next, self._complete = 0, False
        #: The highest index in this pass; -1: no bucket has come.
        self._highest = -1
        #: Buckets behind one that DDP has skipped, by index, until the end of the pass.
        self._held: "dict[int, Any]" = {}
        self._weights: "dict[int, torch.Tensor]" = {}
        #: Whether DDP's own all-reduce carries the gradients of this pass, and the bytes it has carried.
        self._dense_pass, self._dense_bytes = False, 0
        #: When this pass began, the steps skipped by then, and whether its buckets were exchanged as they came.
        self._began, self._skipped, self._as_they_came = 0.0, 0, False

    def _begin_trial(self) -> None:
        """Begins a trial of dense steps, where DDP's own all-reduce can take the place of the exchange."""
        simple = not (self._skips or self._sparse or self._undelivered is not None or self._run_ahead)
        self._trial = Trial() if self._falls_back and simple and not self._by_samples else None

    def _find_model(self) -> None:
        """Finds the model that this was registered with by hand: a hook gets gradients and parameters only. Looks at
        every object there is, once. Without it the process group would be another one, buckets that DDP skips would be
        waited for, and means of unused parameters lost."""
        self._searched = True
        found = (each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel))
        mine = [ddp for ddp in found if any(state is self for _, state in getattr(ddp, "_comm_hooks", ()))]
        if len(mine) > 1:
            raise BadArgument(
                f"this HookState was registered with {len(mine)} models; expected one: every DDP model needs a"
                " HookState of its own"
            )
        if not mine:
            raise BadArgument(
                "the model that this HookState was registered with can't be found: give it the wrapped model,"
                " HookState(ddp)"
                + ("; then give its load_state_dict() the state_dict() of this copy" if self._is_copy else "")
            )
        if self._is_copy:
            self._take_names(mine[0])
        self._engine.use(mine[0].process_group)
        self._observe(mine[0])

    def _take_names(self, model: DistributedDataParallel) -> None:
        """Gives a copy the names of its model's parameters: the hook is not shown any."""
        self._model = weakref.ref(model)
        self._names.update(_names(model))

    def _parameter_order(self) -> "list[tuple[str, int]]":
        model = None if self._model is None else self._model()
        named = () if model is None else model.named_parameters(remove_duplicate=False)
        return self._in_order(parameter for _, parameter in named)

    def __getstate__(self) -> "dict[str, Any]":
        return {**super().__getstate__(), "falls_back": self._falls_back}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self._falls_back = state.get("falls_back", False)
        self._become(state, {}, self._falls_back)
        self._observe(None)

    def on_bucket(self, bucket: dist.GradBucket) -> "torch.futures.Future[torch.Tensor]":  # type: ignore[name-defined]
        """Starts the exchange of a bucket; with the last one it waits for the means of all, or lets the GPU wait."""
        try:
            return self._on_bucket(bucket)
        except StepSkipped:
            raise
        except BaseException as error:
            self._give_up(error)
            raise

    def _on_bucket(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        if not self._searched:
            self._find_model()
        if self._is_copy:
            self._rejoin()
        if bucket.index() <= self._highest or self._highest < 0:
            self._begin_pass()
        self._highest = bucket.index()
        if self._dense_pass:
            return self._reduce_dense(bucket)
        gradient = bucket.buffer()
        # With its device a future records the current stream: whoever takes the mean, on any stream, finds it written.
        devices: "list[Any]" = [gradient.device] if gradient.is_cuda else []
        future: "torch.futures.Future[torch.Tensor]" = torch.futures.Future(devices=devices)
        self._futures.append((future, gradient))
        self._complete = bucket.is_last()
        if self._skips and bucket.index() != self._next:
            # The reducer can't be asked for the skipped ones here: it holds its lock, which is not recursive.
            self._held[bucket.index()] = bucket
        else:
            self._add_bucket(bucket)
        # Waiting here and not in DDP: Python can be interrupted here, and errors keep their words.
        if self._complete and not (self._skips and self._has_inputs):
            self._end_pass()
        return future

    def _begin_pass(self) -> None:
        if self._submitted:
            raise Error("the backward pass before this one was not finished, and its buckets are on their way")
        self._forget()
        # A rank that has run out of inputs (Join) runs the hooks outside of a backward pass.
        self._has_inputs = torch._C._current_graph_task_id() != -1
        self._begin_way()
        if not self._has_inputs:
            if self._undelivered is not None:
                self._undelivered.settle()
            return
        if self._skips:
            # DDP may skip the last bucket.
            _at_end_of_backward(self._end_pass_with_skipped)

    def _begin_way(self) -> None:
        """How the gradients of this pass travel: by the engine, or by DDP's own all-reduce."""
        trial = self._trial
        self._dense_pass = trial is not None and trial.way == DENSE and not trial.flushes
        self._as_they_came = False
        self._began = time.perf_counter()
        self._skipped = self._report.skipped

    def _reduce_dense(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """DDP's own all-reduce of a bucket."""
        ddp = None if self._ddp is None else self._ddp()
        group = self._options.process_group or (None if ddp is None else ddp.process_group)
        gradient = bucket.buffer()
        self._dense_bytes += gradient.numel() * gradient.element_size()
        future = allreduce_hook(group, bucket)  # type: ignore[arg-type]
        self._futures.append((future, gradient))
        if bucket.is_last():
            if self._trial is not None and not self._trial.over:
                for each, _ in self._futures:
                    each.wait()
            self._count_dense(self._dense_bytes)
            self._end_way(gradient)
            self._forget()
        return future

    def _end_way(self, gradient: torch.Tensor) -> None:
        """The end of a pass: takes its time, and decides after the last one of the trial."""
        trial = self._trial
        if trial is None or self._report.skipped > self._skipped:
            return
        if trial.flushes and not self._dense_pass:
            # The residual was sent with this step.
            trial.flushes = False
            self.set_density(None)
            return
        # The exchange of new buckets begins only with the last of them.
        if trial.over or not (self._dense_pass or self._as_they_came):
            return
        if gradient.is_cuda:
            torch.cuda.synchronize(gradient.device)
        trial.record(time.perf_counter() - self._began)
        if trial.complete:
            self._decided(trial.decide(self._engine.connect(), self._step))
            if trial.flushes:
                self.set_density(1.0)

    def _end_pass_with_skipped(self) -> None:
        try:
            if self._held or not self._complete:
                self._add_skipped()
            self._end_pass()
        except StepSkipped:
            raise
        except BaseException as error:
            self._give_up(error)
            raise

    def _add_skipped(self) -> None:
        """Adds the buckets that DDP has skipped, as zeros, and those behind them: every rank exchanges all buckets in
        every step, so their residual is sent, and a rank that does use them does not wait for the others in vain. Not
        from within a hook."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None:
            return
        zeros = ddp.reducer._get_zeros_like_grad_buckets()
        for index in range(self._next, len(zeros)):
            self._add_bucket(self._held.get(index, zeros[index]))

    def _add_bucket(self, bucket: Any) -> None:
        if self._undelivered is not None:
            self._undelivered.show(bucket.parameters())
        # One of parameters without elements has no mean.
        if bucket.buffer().numel():
            self._add(self._bucket(bucket))
        self._next += 1

    def _end_pass(self) -> None:
        self._as_they_came = self._submitted > 0
        try:
            self._finish()
        except StepSkipped as skipped:
            if not self._has_inputs:
                self._forget()
                raise
            _raise_after_backward(skipped)
        for future, gradient in self._futures:
            future.set_result(gradient)
        if self._futures:
            self._end_way(self._futures[0][1])
        if self._undelivered is not None and self._has_inputs:
            # After DDP's own end of the pass, which it queues after this call.
            settle = self._undelivered.settle
            _at_end_of_backward(lambda: _at_end_of_backward(settle))
        self._forget()

    def _forget(self) -> None:
        self._end_step()
        self._futures, self._next = [], 0
        self._highest, self._held = -1, {}
        self._dense_bytes = 0

    def _restored(self) -> None:
        # What was kept by then has to be sent, whatever was decided before.
        self.set_density(None)
        self._begin_trial()

    def _bucket(self, bucket: Any) -> "Union[Bucket, Uncompressed]":
        gradient, parameters = bucket.buffer(), bucket.parameters()
        reason = obstacle(gradient)
        if reason is not None:
            # DDP's buckets have complex gradients as pairs of real numbers.
            reason = obstacle(parameters[0]) or reason
            return Uncompressed([self._name(parameter) for parameter in parameters], gradient, reason)
        layers = [layer_of(self._name(parameter), parameter) for parameter in parameters if parameter.numel()]
        scaled = self._scaler is not None
        if not self.needs_weights:
            return Bucket(layers, gradient, scaled=scaled)
        elements = sum(layer.elements for layer in layers)
        weights = self._weights.get(bucket.index())
        if weights is None or weights.numel() != elements or weights.device != gradient.device:
            weights = torch.zeros(elements, dtype=torch.float32, device=gradient.device)
            self._weights[bucket.index()] = weights
        fill(weights, layers, parameters)
        return Bucket(layers, gradient, weights, scaled)

    def _name(self, parameter: torch.Tensor) -> str:
        name = self._names.get(parameter)
        return self._new_name(parameter) if name is None else name

    def _new_name(self, parameter: torch.Tensor) -> str:
        if self._model is None and not self._engine.layout:
            self._names[parameter] = f"parameter {len(self._names)}"
            return self._names[parameter]
        model = None if self._model is None else self._model()
        names = _names(model)
        if parameter not in names:
            whose = "in the model it was made for" if model is not None else "there in the first step"
            raise BadArgument(
                f"DDP shows this HookState a parameter of shape {list(parameter.shape)} that was not {whose}. If the"
                " parameter was replaced, make the HookState after that; every DDP model needs a HookState of its own"
            )
        # The model has replaced some since it was given. The dictionary is shared.
        self._names.clear()
        self._names.update(names)
        return names[parameter]


def _names(model: Optional[torch.nn.Module]) -> "dict[torch.Tensor, str]":
    """The names of the parameters that the hook will be shown."""
    ignored: "set[str]" = set()
    if isinstance(model, DistributedDataParallel):
        ignored, model = model.parameters_to_ignore, model.module
    named = {} if model is None else dict(model.named_parameters())
    return by_parameter({name: parameter for name, parameter in named.items() if name not in ignored})


def _sparse_parameters(module: torch.nn.Module) -> "set[torch.Tensor]":
    """The parameters that will have sparse gradients, by the rule of DDP."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {part.weight for part in module.modules() if isinstance(part, tables) and part.sparse}


def _raise_after_backward(error: Exception) -> None:
    """Raises at the very end of the backward pass that is under way. DDP queues its own end of the pass after this
    call, and must run it: otherwise it refuses the next pass. So this queues a call that queues the raising one."""

    def fail() -> None:
        raise error

    _at_end_of_backward(lambda: _at_end_of_backward(fail))


# DDP checks the annotations: they must be the types and not their names. It logs the hook by its name.
def thinwire_hook(
    state: HookState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: ``ddp.register_comm_hook(tw.HookState(model, method="redsync"), tw.hook)``."""
    if not isinstance(state, HookState):
        raise BadArgument(
            f"the state of thinwire.torch.hook is {state!r}; expected a HookState:"
            " ddp.register_comm_hook(tw.HookState(ddp), tw.hook)"
        )
    return state.on_bucket(bucket)


hook = thinwire_hook


def compress(
    ddp: DistributedDataParallel,
    method: Optional[str] = None,
    density: Optional[float] = None,
    *,
    process_group: Optional[dist.ProcessGroup] = None,
    timeout: Timeout = None,
    scaler: Optional[GradScaler] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    mean: Mean = "ranks",
    steps_per_epoch: Optional[float] = None,
    total_steps: Optional[int] = None,
    threads: Optional[int] = None,
    check_replicas_every: int = 100,
    run_ahead: RunAhead = False,
    **parameters: Value,
) -> HookState:
    """Lets a DistributedDataParallel model exchange compressed gradients. All ranks call it, once, before the first
    backward pass.

    If some rank's gradient holds a NaN or an infinity, and no ``scaler`` is given, ``backward()`` ends with
    :class:`thinwire.StepSkipped` on every rank; gradients are zeros then, and the next pass may follow.

    Gradients that can't be compressed (64-bit, sparse) are averaged dense, at the end of the backward pass and before
    the others are exchanged; the report names them.

    Args:
        ddp: The model, wrapped.
        method: A method, with parameters or without: ``"topk"``, ``"ar-topk:leader=var"``. See
            :func:`thinwire.methods`. If not given: everything is sent, in 4 bits with error feedback (``quantized``),
            which is safe with any optimiser. The first steps then also try DDP's own all-reduce; where that is faster
            it carries the gradients from then on, and the report says so. ``method="quantized"`` does not try.
        density: The part of the gradient to send, with a method that sends a part. If not given: 1 % (``fft`` and
            ``auto`` have settings of their own instead).
        process_group: The ranks; those of ``ddp`` if not given. The hook makes process groups of its own from them.
        timeout: How long a rank waits for another, in seconds or as a timedelta: in a step, when states are loaded or
            gathered, and when the ranks meet. If not given: two minutes, or the process group's timeout if that is
            shorter; and the process group's timeout when the ranks meet.
        scaler: The ``GradScaler`` of an AMP training. Gradients are then kept without its scale, and a step with
            infinities is skipped on every rank, for all optimisers, and leaves what was not sent as it was.
        optimizer: A :class:`thinwire.torch.AdamW`, which a sparse method needs to keep the loss of AdamW: the method
            then has its momentum, and a warm-up of 15 % of ``total_steps`` unless it has another one. Any other is
            only looked at: a warning tells if its momentum doubles that of the method, or if it has a second moment
            (Adam and its kin) and the method is sparse; the first step of an optimiser is noticed too. With
            ``"auto"``, SGD given here lets it choose ``topk`` and ``ar-topk`` too; else it sends everything.
        mean: ``"ranks"``: every rank counts the same. ``"samples"``: by what :meth:`HookState.set_samples` says.
        steps_per_epoch: For warm-ups that are counted in epochs; otherwise call :meth:`HookState.set_epoch`.
        total_steps: The steps of the whole run, for warm-ups that are a part of it (``warmup="quantized/15%"``).
        threads: For the arithmetic of this rank; ``torch.get_num_threads()`` if not given.
        check_replicas_every: Compare checksums of the mean gradients every so many steps; 0: never.
        run_ahead: With gradients on a GPU, ``backward()`` returns before the means are there: the GPU waits for them
            and not the host, which goes on to the end of the optimiser's ``step()`` and waits there. What a step has
            come to is known late: after an error the optimiser has gone on with gradients of zeros, and its ``step()``
            raises it, or the next ``backward()``, ``report()``, ``state_dict()`` or ``close()``. Of a skipped step the
            end of the next ``backward()`` tells, whose own gradients are good. Not with a ``scaler``. It changes
            nothing on the CPU, with gradients that can't be compressed, or with ``find_unused_parameters``.
            ``"forward"`` lets the host run on into the next forward pass. Whatever blocks the driver there (a copy from
            or to memory that is not pinned, a kernel loaded for the first time, a full launch queue) is an error that
            costs the weights. Call ``wait()`` first where in doubt, and after updates that are not by a
            ``torch.optim.Optimizer``.
        parameters: More parameters of the method, as keywords: ``quantize=True``.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise BadArgument(
            f"compress() was given a {type(ddp).__name__}; expected a DistributedDataParallel model."
            " For loops without DDP there is thinwire.torch.Synchronizer"
        )
    state = HookState(
        ddp,
        method,
        density,
        process_group=process_group,
        timeout=timeout,
        scaler=scaler,
        optimizer=optimizer,
        mean=mean,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        threads=threads,
        check_replicas_every=check_replicas_every,
        run_ahead=run_ahead,
        **parameters,
    )
    _check_no_hook(ddp)
    one_device((name, parameter) for parameter, name in state._names.items() if parameter.requires_grad)
    state._engine.connect()
    try:
        ddp.register_comm_hook(state, hook)
    except BaseException:
        state._engine.close()
        raise
    return state


def _check_no_hook(ddp: DistributedDataParallel) -> None:
    """DDP checks this too, but not before the ranks have met."""
    if getattr(ddp, "mixed_precision", None) is not None:
        raise BadArgument(
            "the model was made with mixed_precision, for which DDP has a communication hook of its own; expected none:"
            " use torch.autocast"
        )
    for other, _ in getattr(ddp, "_comm_hooks", ()):
        name = getattr(other, "__qualname__", repr(other))
        raise BadArgument(
            f"the model has the communication hook {name}, and register_comm_hook can only be called once; wrap the"
            " model in DistributedDataParallel anew"
        )
