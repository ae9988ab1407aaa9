"""The hook of DistributedDataParallel."""

import gc
import time
import weakref
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thinwire._method import Value
from thinwire.errors import BadArgument, Error, GroupLost, StepSkipped
from thinwire.torch import _watchdog
from thinwire.torch._bucket import Bucket, fill, layer_of, obstacle
from thinwire.torch._core import Core
from thinwire.torch._device import one_device
from thinwire.torch._group import TIMEOUT
from thinwire.torch._names import by_parameter
from thinwire.torch._options import Options, RunAhead, Timeout, method_with_defaults
from thinwire.torch._uncompressed import Uncompressed
from thinwire.torch._undelivered import Undelivered

#: Calls a function when the backward pass that is under way ends, after those that were queued before.
_at_end_of_backward = torch.autograd.Variable._execution_engine.queue_callback


class HookState(Core):
    """The state of :func:`hook`, for ``ddp.register_comm_hook(state, tw.hook)`` and for trainers that register hooks
    themselves; :func:`compress` makes one and registers it.

    ``model`` gives parameters their names, by which states are kept; without it they are numbered in the order in which
    DDP first shows them. Everything else is as in :func:`compress`.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        method: Optional[str] = None,
        density: Optional[float] = None,
        *,
        process_group: Optional[dist.ProcessGroup] = None,
        timeout: Timeout = None,
        scaler: Optional[Any] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        mean: str = "ranks",
        steps_per_epoch: Optional[float] = None,
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
            threads=threads,
            check_replicas_every=check_replicas_every,
            run_ahead=run_ahead,
        )
        super().__init__(_names(model), method_with_defaults(method, density, parameters), options)
        self._observe(model)

    def _observe(self, model: Optional[torch.nn.Module]) -> None:
        ddp = model if isinstance(model, DistributedDataParallel) else None
        self._sparse = set() if model is None else _sparse_parameters(model)
        #: The model, where it is known. It owns the reducer, which owns this: not to be held from here.
        self._ddp: "Optional[weakref.ref[DistributedDataParallel]]" = None if ddp is None else weakref.ref(ddp)
        if ddp is not None and ddp.find_unused_parameters and not ddp.static_graph:
            self._undelivered = Undelivered(ddp, self._names)
            self._engine.undelivered = self._undelivered
        #: Whether DDP passes over buckets that no parameter of this step is in.
        self._skips = bool(ddp is not None and getattr(ddp, "skip_all_reduce_unused_params", False))
        self._futures: "list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]]" = []
        #: The index of DDP's next bucket.
        self._next = 0
        self._weights: "dict[int, torch.Tensor]" = {}
        #: Since when DDP has futures that are not completed.
        self.waiting_since: Optional[float] = None
        _watchdog.watch(self)

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self._become(state, {})
        self._observe(None)

    def _find_model(self) -> None:
        """A copy learns which model it was registered with: names can't be told from what the hook is shown."""
        everything = (found for found in gc.get_objects() if issubclass(type(found), DistributedDataParallel))
        mine = [ddp for ddp in everything if any(state is self for _, state in ddp._comm_hooks)]
        if not mine:
            raise Error(
                "a copy of a HookState was registered with a model that can't be found. Make another for the model, and"
                " give its load_state_dict() the state_dict() of the copy"
            )
        self._names.update(_names(mine[0]))
        self._engine.use(mine[0].process_group)
        self._observe(mine[0])

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
        if self._is_copy:
            self._find_model()
            self._rejoin()
        if self._next == 0 or bucket.index() < self._next:
            self._begin_pass()
        self._add_skipped(bucket.index())
        gradient = bucket.buffer()
        # Whoever takes a mean from a future of its device, on whatever stream, finds it written.
        devices: "list[Any]" = [gradient.device] if gradient.is_cuda else []
        future: "torch.futures.Future[torch.Tensor]" = torch.futures.Future(devices=devices)
        self._futures.append((future, gradient))
        self.waiting_since = time.monotonic()
        self._add(self._bucket(bucket))
        self._next += 1
        # Waiting here and not in DDP: Python can be interrupted here, and errors keep their words.
        if bucket.is_last() and not (self._skips and self._has_inputs):
            self._end_pass()
        return future

    def _begin_pass(self) -> None:
        if self._submitted:
            raise Error("the backward pass before this one was not finished, and its buckets are on their way")
        self._forget()
        if self._undelivered is not None:
            self._undelivered.settle()
        # Nothing is being computed on a rank that has run out of inputs (Join).
        self._has_inputs = torch._C._current_graph_task_id() != -1
        if self._skips and self._has_inputs:
            # DDP may skip the last bucket, so no hook knows that it is the last.
            _at_end_of_backward(self._end_pass_with_skipped)

    def _end_pass_with_skipped(self) -> None:
        try:
            self._add_skipped(None)
            self._end_pass()
        except StepSkipped:
            raise
        except BaseException as error:
            self._give_up(error)
            raise

    def _add_skipped(self, until: Optional[int]) -> None:
        """Adds buckets that DDP has skipped, up to this index, as zeros: their residual stays in step with that of the
        others, and a rank that does use them finds all others there."""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None or self._next == until or not self._skips:
            return
        for bucket in ddp.reducer._get_zeros_like_grad_buckets()[self._next : until]:
            self._add(self._bucket(bucket))
            self._next += 1

    def _end_pass(self) -> None:
        # From here on the collectives have deadlines of their own.
        self.waiting_since = None
        try:
            self._finish()
        except StepSkipped as skipped:
            if not self._has_inputs:
                self._forget()
                raise
            _raise_after_backward(skipped)
        for future, gradient in self._futures:
            future.set_result(gradient)
        if self._undelivered is not None and self._has_inputs:
            # After DDP's own end of the pass, which is queued behind this call.
            settle = self._undelivered.settle
            _at_end_of_backward(lambda: _at_end_of_backward(settle))
        self._forget()

    def _forget(self) -> None:
        self._end_step()
        self._futures, self._next, self.waiting_since = [], 0, None

    def timeout_seconds(self) -> float:
        """How long DDP may wait for the last bucket."""
        group = self._engine.group
        return (TIMEOUT if group is None else group.timeout).total_seconds()

    def expire(self) -> None:
        """Fails the futures that DDP waits for."""
        futures, self.waiting_since = self._futures, None
        error = GroupLost(
            f"DDP did not come to its last bucket within {self.timeout_seconds():g} s of the one before. If it was"
            " told to skip_all_reduce_unused_params, make the hook by thinwire.torch.compress(ddp)"
        )
        self._engine.fail(str(error))
        for future, _ in futures:
            if not future.done():
                future.set_exception(error)  # type: ignore[arg-type]

    def _bucket(self, bucket: Any) -> "Union[Bucket, Uncompressed]":
        gradient, parameters = bucket.buffer(), bucket.parameters()
        reason = obstacle(gradient)
        if reason is not None:
            # DDP's buckets have complex gradients as pairs of real numbers.
            reason = obstacle(parameters[0]) or reason
            return Uncompressed([self._name(parameter) for parameter in parameters], gradient, reason)
        layers = [layer_of(self._name(parameter), parameter) for parameter in parameters]
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
        if name is None:
            name = self._names[parameter] = f"parameter {len(self._names)}"
        return name


def _names(model: Optional[torch.nn.Module]) -> "dict[torch.Tensor, str]":
    """The names of the parameters that the hook will be shown."""
    ignored: "set[str]" = set()
    if isinstance(model, DistributedDataParallel):
        ignored, model = model.parameters_to_ignore, model.module
    named = {} if model is None else dict(model.named_parameters())
    return by_parameter({name: parameter for name, parameter in named.items() if name not in ignored})


def _sparse_parameters(module: torch.nn.Module) -> "set[torch.Tensor]":
    """The parameters whose gradients will be sparse, as DDP finds them."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {part.weight for part in module.modules() if isinstance(part, tables) and part.sparse}


def _raise_after_backward(error: Exception) -> None:
    """Raises at the very end of the backward pass that is under way. DDP has then ended its part, which is queued after
    this call and before what is queued by it; otherwise it would refuse the next pass."""

    def fail() -> None:
        raise error

    _at_end_of_backward(lambda: _at_end_of_backward(fail))


# DDP looks at the annotations: they must be the types and not their names.
# DDP's log has its name.
def thinwire_hook(
    state: HookState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook: ``ddp.register_comm_hook(tw.HookState(model, method="redsync"), tw.hook)``."""
    if not isinstance(state, HookState):
        raise BadArgument(f"the hook's state is {state!r}; expected a thinwire.torch.HookState")
    return state.on_bucket(bucket)


hook = thinwire_hook


def compress(
    ddp: DistributedDataParallel,
    method: Optional[str] = None,
    density: Optional[float] = None,
    *,
    process_group: Optional[dist.ProcessGroup] = None,
    timeout: Timeout = None,
    scaler: Optional[Any] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    mean: str = "ranks",
    steps_per_epoch: Optional[float] = None,
    threads: Optional[int] = None,
    check_replicas_every: int = 100,
    run_ahead: RunAhead = False,
    **parameters: Value,
) -> HookState:
    """Lets a DistributedDataParallel model exchange compressed gradients. All ranks call it, once, before the first
    backward pass.

    If some rank's gradient holds a NaN or an infinity, and no ``scaler`` is given, ``backward()`` ends with
    :class:`thinwire.StepSkipped` on every rank; gradients are zeros then, and the next pass may follow.

    Gradients that can't be compressed (64-bit, sparse) are averaged dense; the report names them.

    Args:
        ddp: The model, wrapped.
        method: A method, with parameters or without: ``"redsync"``, ``"ar-topk:leader=var"``. See
            :func:`thinwire.methods`. If not given: ``redsync``.
        density: The part of the gradient to send. If not given: 1 %, whatever the method (``fft`` and ``auto`` have
            settings of their own instead).
        process_group: The ranks; those of ``ddp`` if not given. The hook makes process groups of its own from them.
        timeout: How long a rank is waited for in a step, in seconds or as a timedelta. If not given: two minutes, or
            the process group's timeout if that is shorter.
        scaler: The ``GradScaler`` of an AMP training. Gradients are then kept without its scale, and a step with
            infinities is skipped on every rank and leaves what was not sent as it was.
        optimizer: Only looked at: a warning tells if its momentum doubles that of the method. Not needed: the first
            step of an optimiser is noticed too.
        mean: ``"ranks"``: every rank counts the same. ``"samples"``: by what :meth:`HookState.set_samples` says.
        steps_per_epoch: For methods that warm up; otherwise call :meth:`HookState.set_epoch`.
        threads: For the arithmetic of this rank; ``torch.get_num_threads()`` if not given.
        check_replicas_every: Compare checksums of the mean gradients every so many steps; 0: never.
        run_ahead: With gradients on a GPU, ``backward()`` returns before the means are there: the GPU waits for them
            and not the host, which goes on to the end of the optimiser's ``step()`` and waits there. What a step has
            come to is known late: after an error the optimiser has gone on with gradients of zeros, and its ``step()``
            raises it, or the next ``backward()``, ``report()``, ``state_dict()`` or ``close()``. Of a skipped step the
            end of the next ``backward()`` tells, whose own gradients are good. Not with a ``scaler``; on the CPU it
            changes nothing. ``"forward"`` lets the host run on into the next forward pass. Whatever blocks the driver
            there (a copy from or to memory that is not pinned, a kernel loaded for the first time, a full launch
            queue) is an error that costs the weights. Call ``wait()`` first where in doubt, and after updates that
            are not by a ``torch.optim.Optimizer``.
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
        threads=threads,
        check_replicas_every=check_replicas_every,
        run_ahead=run_ahead,
        **parameters,
    )
    one_device((name, parameter) for parameter, name in state._names.items() if parameter.requires_grad)
    state._engine.connect()
    ddp.register_comm_hook(state, hook)
    return state
