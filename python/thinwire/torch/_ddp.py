"""The hook of DistributedDataParallel."""

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thinwire._method import Value
from thinwire.errors import BadArgument, Error, StepSkipped
from thinwire.torch._bucket import Bucket, fill, layer_of
from thinwire.torch._core import Core, RunAhead
from thinwire.torch._device import one_device


class HookState(Core):
    """What :func:`hook` keeps. For ``ddp.register_comm_hook(state, tw.hook)`` and for trainers that register hooks
    themselves; :func:`compress` makes one and registers it.

    ``model`` gives parameters their names, by which states are kept; without it they are numbered in the order in which
    DDP first shows them. Everything else is as in :func:`compress`.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        method: Optional[str] = None,
        density: Optional[float] = None,
        **settings: Any,
    ) -> None:
        if model is not None and not isinstance(model, torch.nn.Module):
            raise BadArgument(f"model is a {type(model).__name__}; expected a torch.nn.Module")
        ignored: "set[str]" = set()
        if isinstance(model, DistributedDataParallel):
            settings.setdefault("process_group", model.process_group)
            ignored = model.parameters_to_ignore
            model = model.module
        trained = () if model is None else model.named_parameters()
        names: "dict[torch.Tensor, str]" = {p: name for name, p in trained if name not in ignored}
        super().__init__(names, method, density, **settings)
        self._futures: "list[torch.futures.Future[torch.Tensor]]" = []
        self._weights: "dict[int, torch.Tensor]" = {}

    def on_bucket(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        """Takes a bucket of DDP in; with the last one it waits for the means of all, or lets the GPU wait."""
        try:
            return self._on_bucket(bucket)
        except StepSkipped:
            raise
        except BaseException as error:
            self._give_up(error)
            raise

    def _on_bucket(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        if bucket.index() == 0:
            if self._submitted:
                raise Error("the backward pass before this one was not finished, and its buckets are on their way")
            self._forget()
            # Nothing is being computed on a rank that has run out of inputs (Join).
            self._has_inputs = torch._C._current_graph_task_id() != -1
        taken = self._bucket(bucket)
        # Whoever takes a mean from a future of its device, on whatever stream, finds it written.
        devices = [taken.gradient.device] if taken.gradient.is_cuda else []
        future: "torch.futures.Future[torch.Tensor]" = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
        self._futures.append(future)
        self._add(taken)
        if bucket.is_last():
            # Waiting here and not in DDP: Python can be interrupted here, and errors keep their words.
            try:
                self._finish()
            except StepSkipped as skipped:
                if not self._has_inputs:
                    self._forget()
                    raise
                _raise_after_backward(skipped)
            for waiting, done in zip(self._futures, self._arrived):
                waiting.set_result(done.gradient)
            self._forget()
        return future

    def _forget(self) -> None:
        self._end_step()
        self._futures = []

    def _bucket(self, bucket: Any) -> Bucket:
        gradient, parameters = bucket.buffer(), bucket.parameters()
        layers = [layer_of(self._name(parameter), parameter) for parameter in parameters]
        scaled = self._scaler is not None
        if not self.needs_weights:
            return Bucket(layers, gradient, scaled=scaled)
        weights = self._weights.get(bucket.index())
        if weights is None or weights.shape != gradient.shape or weights.device != gradient.device:
            weights = self._weights[bucket.index()] = torch.zeros(gradient.numel(), device=gradient.device)
        fill(weights, layers, parameters)
        return Bucket(layers, gradient, weights, scaled)

    def _name(self, parameter: torch.Tensor) -> str:
        name = self._names.get(parameter)
        if name is None:
            name = self._names[parameter] = f"parameter {len(self._names)}"
        return name


def _raise_after_backward(error: Exception) -> None:
    """Raises at the very end of the backward pass that is under way. DDP has then ended its part, which is queued after
    this call and before what is queued by it; otherwise it would refuse the next pass."""

    def fail() -> None:
        raise error

    queue = torch.autograd.Variable._execution_engine.queue_callback
    queue(lambda: queue(fail))


# DDP looks at the annotations: they must be the types and not their names.
def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """A communication hook: ``ddp.register_comm_hook(tw.HookState(model, method="redsync"), tw.hook)``."""
    return state.on_bucket(bucket)


def compress(
    ddp: DistributedDataParallel,
    method: Optional[str] = None,
    density: Optional[float] = None,
    *,
    process_group: Optional[Any] = None,
    timeout: Any = None,
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

    With ``find_unused_parameters`` DDP leaves the gradients of parameters that no rank has used in a step as they are.
    What was kept for such a parameter and is sent in such a step does not reach it.

    Args:
        ddp: The model, wrapped.
        method: A method, with parameters or without: ``"redsync"``, ``"ar-topk:leader=var"``. See
            :func:`thinwire.methods`. If not given: ``redsync`` at a density of 1 %.
        density: The part of the gradient to send; the method's own if not given (0.1 % with ``"redsync"``).
        process_group: The ranks; those of ``ddp`` if not given. The hook makes process groups of its own from them.
        timeout: How long a rank is waited for, in seconds or as a timedelta; the process group's if not given.
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
            changes nothing. ``"forward"`` lets the host run on into the next forward pass, which takes some care: what
            stands in the way of the engine is an error that costs the weights (docs/pytorch.md has a list). Call
            ``wait()`` first where in doubt, and after updates that are not by a ``torch.optim.Optimizer``.
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
        process_group=ddp.process_group if process_group is None else process_group,
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
