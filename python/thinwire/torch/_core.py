"""What the DDP hook and the plain loop have in common: buckets in, their means out; states and reports."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Optional, Sequence, Union

import torch
import torch.distributed as dist

from thinwire import _native
from thinwire._method import Value, method_text
from thinwire.errors import BadArgument, BadState, Error, StepSkipped
from thinwire.torch import _momentum, _state
from thinwire.torch._agree import agree
from thinwire.torch._group import TorchGroup
from thinwire.torch._report import Report

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Bucket:
    """One bucket of one step."""

    #: Names and shapes of its parameters, in their order.
    layers: "list[tuple[str, tuple[int, ...]]]"
    #: The flat gradient; its mean takes its place.
    gradient: torch.Tensor
    #: The weights in the same order, where the method looks at them.
    weights: Optional[torch.Tensor] = None

    def __post_init__(self) -> None:
        check_gradient(self.gradient, self.layers[0][0] if self.layers else "a bucket")
        #: What the engine works on: 32-bit floats.
        self.work = self.gradient.detach()
        if self.work.dtype != torch.float32 or not self.work.is_contiguous():
            self.work = self.work.to(torch.float32).contiguous()

    def told(self) -> str:
        dtype = str(self.gradient.dtype).removeprefix("torch.")
        return f"{dtype}: " + ", ".join(f"{name} {list(shape)}" for name, shape in self.layers)


class Core:
    """Keeps gradients in step. Its process group is made with the first step, or at once by :meth:`connect`.

    Parameters are those of :func:`thinwire.torch.compress`.
    """

    def __init__(
        self,
        names: "dict[torch.Tensor, str]",
        method: str = "redsync",
        density: Optional[float] = None,
        *,
        process_group: Optional[Any] = None,
        timeout: Union[timedelta, float, None] = None,
        scaler: Optional[Any] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        mean: str = "ranks",
        steps_per_epoch: Optional[float] = None,
        threads: Optional[int] = None,
        check_replicas_every: int = 100,
        **parameters: Value,
    ) -> None:
        self.method = method_text(method, density, **parameters)
        _, self.needs_weights, _, momentum, self._warms_up = _native.describe(self.method)
        if mean not in ("ranks", "samples"):
            raise BadArgument(f"mean is {mean!r}; expected 'ranks' or 'samples'")
        if steps_per_epoch is not None and not steps_per_epoch > 0:
            raise BadArgument(f"steps_per_epoch is {steps_per_epoch!r}; expected a number above 0")
        self._names = names
        self._process_group = process_group
        self._timeout = timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout
        self._scaler = scaler
        self._by_samples = mean == "samples"
        self._steps_per_epoch = steps_per_epoch
        self._threads = threads
        self._check_replicas_every = check_replicas_every
        self._samples = 1.0
        self._epoch: Optional[float] = None
        self._density: Optional[float] = None
        self._step = 0
        self._group: Optional[TorchGroup] = None
        self._native: Optional[Any] = None
        #: The layers of each bucket, as the engine knows them; and whether the last two steps had the same.
        self._layout: "list[list[tuple[str, tuple[int, ...]]]]" = []
        self._settled = False
        self._arrived: "list[Bucket]" = []
        self._submitted = 0
        #: A state to go on from, once the buckets are known.
        self._pending: Optional["dict[str, Any]"] = None
        self._report = Report(method=self.method)
        if momentum > 0:
            _momentum.watch(weakref.ref(self), self.method, momentum, optimizer)

    # ---- a step ----

    def connect(self) -> TorchGroup:
        """Makes the process group, if there is none yet; all ranks do it together."""
        if self._group is None:
            self._group = TorchGroup(self._process_group, self._timeout)
            self._report.ranks = self._group.size
        return self._group

    def add(self, bucket: Bucket) -> None:
        """Takes the next bucket of this step in. It travels at once if the buckets have been the same for two steps:
        DDP makes others after its first."""
        place = len(self._arrived)
        self._arrived.append(bucket)
        if not self._settled:
            return
        if place < len(self._layout) and self._layout[place] == bucket.layers:
            self._submit(place)
        elif self._submitted:
            self.fail("the buckets changed in the midst of a step")
            raise Error(
                f"bucket {place} holds other parameters than in the step before, but buckets before it are on their"
                " way; wrap the model in DistributedDataParallel anew and call thinwire.torch.compress again"
            )
        else:
            self._settled = False

    def finish(self) -> None:
        """Ends the step: the gradient of every bucket becomes the mean over all ranks."""
        arrived, self._arrived = self._arrived, []
        try:
            layout = [bucket.layers for bucket in arrived]
            if self._submitted == 0:
                self._settled = layout == self._layout
                if self._native is None or not self._settled:
                    self._build(arrived)
                self._arrived = arrived
                for place in range(len(arrived)):
                    self._submit(place)
                self._arrived = []
            elif self._submitted < len(self._layout):
                self.fail("buckets are missing")
                raise Error(f"{len(arrived)} buckets came in this step; expected {len(self._layout)} as in the last")
            self._wait(arrived)
        finally:
            self._submitted = 0

    def _submit(self, place: int) -> None:
        bucket, scale = self._arrived[place], self._scale()
        if place == 0:
            self._begin()
        if scale != 1.0:
            bucket.work.mul_(1.0 / scale)
        weights = None if bucket.weights is None else _state.handed(bucket.weights)
        self._native.submit(place, _state.handed(bucket.work), weights)
        self._submitted += 1

    def _begin(self) -> None:
        if self._steps_per_epoch is not None:
            self._epoch = self._step / self._steps_per_epoch
        elif self._epoch is None and self._warms_up and self._step == 0:
            warnings.warn(
                f"{self.method} warms up by epochs, but nobody says when one is over: give steps_per_epoch, or call"
                " set_epoch() before every epoch; until then the density stays that of the start",
                stacklevel=2,
            )
        if self._epoch is not None:
            self._native.set_epoch(float(self._epoch))
        if self._by_samples:
            self._native.set_samples(float(self._samples))
        self._native.set_density(self._density)

    def _wait(self, arrived: "list[Bucket]") -> None:
        try:
            self._report.add(self._native.wait())
        except StepSkipped:
            self._step += 1
            self._report.skipped += 1
            if self._scaler is None:
                raise
            # The scaler finds these on every rank, leaves the weights alone and lowers the scale.
            for bucket in arrived:
                bucket.gradient.fill_(float("inf"))
            return
        except KeyboardInterrupt:
            self.fail("it was interrupted")
            raise
        self._step += 1
        scale = self._scale()
        for bucket in arrived:
            if scale != 1.0:
                bucket.work.mul_(scale)
            if bucket.work.data_ptr() != bucket.gradient.data_ptr():
                bucket.gradient.copy_(bucket.work)

    def fail(self, reason: str) -> None:
        """Gives up, and tells the other ranks why."""
        if self._native is not None:
            self._native.give_up()
        if self._group is not None:
            self._group.abandon(reason)

    def _build(self, arrived: "list[Bucket]") -> None:
        """An engine for these buckets, that goes on where the last one was."""
        group = self.connect()
        told = {"the method": self.method, "the mean": "samples" if self._by_samples else "ranks"}
        told["the loss scaler"] = "given" if self._scaler is not None else "not given"
        told["check_replicas_every"] = str(self._check_replicas_every)
        told.update((f"bucket {place}", bucket.told()) for place, bucket in enumerate(arrived))
        agree(group, told)
        state = self._pending or self._saved()
        self._native = None
        self._layout = [bucket.layers for bucket in arrived]
        self._native = _native.Synchronizer(
            group,
            self.method,
            self._layout,
            threads=self._threads or torch.get_num_threads(),
            check_replicas_every=self._check_replicas_every,
            by_samples=self._by_samples,
            check_first=self._scaler is not None,
        )
        if state is not None:
            self._restore(state)
        self._pending = None

    def _scale(self) -> float:
        """The loss scale the gradients carry."""
        return float(self._scaler.get_scale()) if self._scaler is not None and self._scaler.is_enabled() else 1.0

    # ---- what the user may say and ask ----

    def set_epoch(self, epoch: float) -> None:
        """Says how many epochs are done, for methods that warm up. The same on all ranks."""
        self._epoch = float(epoch)

    def set_samples(self, samples: float) -> None:
        """Says how many samples this rank's next gradients are the mean of, with ``mean="samples"``."""
        if not self._by_samples:
            raise BadArgument("set_samples() has no effect with mean='ranks'; give mean='samples'")
        self._samples = float(samples)

    def set_density(self, density: Optional[float]) -> None:
        """Sets another density from the next step on, or with ``None`` the method's own again. The same on all ranks."""
        if density is not None and not 0 < density <= 1:
            raise BadArgument(f"density is {density!r}; expected a number above 0 and up to 1")
        self._density = density

    def report(self) -> Report:
        """Bytes, ratio, achieved k, gain and stage times so far."""
        if self._native is not None:
            self._report.residual_bytes = self._native.memory_bytes()
            self._report.workspace_bytes = self._native.workspace_bytes()
        return self._report

    def close(self) -> None:
        """Gives memory and process group back; all ranks do it together. Nothing can be exchanged afterwards."""
        self._native = None
        if self._group is not None:
            self._group.close()

    # ---- states ----

    def state_dict(self, all_ranks: bool = False) -> Any:
        """What this rank has not sent yet, by parameter name, and all else that a run needs to go on as if nothing had
        happened. Every rank has its own.

        With ``all_ranks=True``, which all ranks must call together: a list of everybody's on rank 0, and ``None`` on the
        others. That sends a whole residual from every rank to rank 0.
        """
        saved = self._pending or self._saved() or self._empty()
        if not all_ranks:
            return saved
        group = self.connect()
        everybody: Optional["list[Any]"] = [None] * group.size if group.rank == 0 else None
        dist.gather_object(saved, everybody, dst=group._world[0], group=group._group)
        return everybody

    def load_state_dict(self, state: Any) -> None:
        """Goes on from this rank's state, or from a list of the states of all ranks there were. A list also fits into
        more or fewer ranks: the sum of what was not sent is kept."""
        group = self.connect()
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        shapes = self._shapes()
        for one in states:
            _state.check(one, shapes)
        if isinstance(state, (list, tuple)):
            state = _state.share(states, group.rank, group.size)
        elif (state["rank"], state["ranks"]) != (group.rank, group.size) and state["ranks"] != 0:
            raise BadState(
                f"the state is of rank {state['rank']} of {state['ranks']}, this is rank {group.rank} of {group.size}."
                " Every rank loads its own; or load a list of the states of all ranks, such as"
                " state_dict(all_ranks=True) gives, which fits into any number of ranks"
            )
        if self._native is None:
            self._pending = state
            self._step = state["step"]
        else:
            self._restore(state)

    def _saved(self) -> Optional["dict[str, Any]"]:
        if self._native is None:
            return None
        shapes = {name: shape for layers in self._layout for name, shape in layers}
        return _state.to_tensors(self._native.save(), shapes)

    def _empty(self) -> "dict[str, Any]":
        rank, ranks = (self._group.rank, self._group.size) if self._group is not None else (0, 0)
        empty = {"method": self.method, "step": 0, "epoch": 0.0, "rank": rank, "ranks": ranks}
        return {"format": _state.FORMAT, **empty, "selectors": {}, "residual": {}, "momentum": {}}

    def _restore(self, state: "dict[str, Any]") -> None:
        self._step = state["step"]
        if not state["residual"]:
            state = {**self._saved(), "step": state["step"], "epoch": state["epoch"]}
        self._native.restore(_state.for_engine(state))

    def _shapes(self) -> "dict[str, Sequence[int]]":
        """The shapes of the parameters that are trained, by name."""
        return {name: tuple(p.shape) for p, name in self._names.items() if p.requires_grad}


def check_gradient(gradient: torch.Tensor, where: str) -> None:
    """Fails for gradients that can't be compressed."""
    if gradient.device.type != "cpu":
        raise BadArgument(
            f"the gradient of {where} is on {gradient.device}; this version compresses gradients in the CPU's memory"
        )
    if gradient.layout != torch.strided:
        raise BadArgument(f"the gradient of {where} is {gradient.layout}; expected a dense one (Embedding(sparse=False))")
    if gradient.dtype not in _DTYPES:
        raise BadArgument(f"the gradient of {where} is {gradient.dtype}; expected float32, float16 or bfloat16")
