"""The native engine for the buckets as they are now; made anew when they change."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Optional, Union

import torch
import torch.distributed as dist

from thinwire import _native
from thinwire.errors import Error, GroupLost
from thinwire.torch import _state
from thinwire.torch._agree import agree
from thinwire.torch._bucket import Bucket, Layer
from thinwire.torch._device import CPU
from thinwire.torch._group import TorchGroup
from thinwire.torch._redistribute import sources
from thinwire.torch._undelivered import Undelivered


@dataclass
class Settings:
    """What the engine is told."""

    method: str
    has_momentum: bool
    by_samples: bool
    #: Gradients may hold infinities: look at them before anything else.
    check_first: bool
    check_replicas_every: int
    threads: Optional[int]
    process_group: Optional[Any]
    timeout: Optional[timedelta]
    #: On a GPU, the stream waits for the end of a step and not the host.
    run_ahead: Union[bool, str] = False
    #: Of the whole run, where they are known.
    total_steps: Optional[int] = None
    #: Dense steps may take the place of compressed ones.
    falls_back: bool = False

    def told(self) -> "dict[str, str]":
        """What must be the same on all ranks."""
        return {
            "the method": self.method,
            "the mean": "samples" if self.by_samples else "ranks",
            "the loss scaler": "given" if self.check_first else "not given",
            "check_replicas_every": str(self.check_replicas_every),
            # Ranks hear of a skipped step with the same pass, or their optimisers do different things.
            "run_ahead": str(self.run_ahead),
            "total_steps": str(self.total_steps),
            "a fallback to dense": "tried" if self.falls_back else "not tried",
        }


class Engine:
    """Exchanges buckets. Its process group is made with the first step, or before by :meth:`connect`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.group: Optional[TorchGroup] = None
        #: The engine itself, once the buckets are known.
        self.native: Optional[Any] = None
        #: The layers of each bucket, as the native part knows them.
        self.layout: "list[list[Layer]]" = []
        #: Where it works.
        self.device = CPU
        self.closed = False
        #: Means that are kept outside the engine, to be saved with its residual.
        self.undelivered: Optional[Undelivered] = None
        #: A state to go on from, once the buckets are known.
        self._pending: Optional["dict[str, Any]"] = None
        #: Whether it must have exactly the parameters of the buckets.
        self._strict = True

    def use(self, process_group: Any) -> None:
        """Takes the ranks from this process group, unless another was given or the ranks have met already."""
        if self.group is None and self._settings.process_group is None:
            self._settings.process_group = process_group

    def connect(self) -> TorchGroup:
        """Makes the process group, if there is none yet; all ranks do it together."""
        if self.closed:
            raise Error("the synchronizer was closed")
        if self.group is None:
            group = TorchGroup(self._settings.process_group, self._settings.timeout)
            agree(group, self._settings.told())
            self.group = group
        return self.group

    def expects(self, place: int, bucket: Bucket) -> bool:
        """Whether this is the bucket in this place as the native part knows it."""
        known = place < len(self.layout) and self.layout[place] == bucket.layers
        return known and self.device == bucket.work.device

    def fits(self, buckets: "list[Bucket]") -> bool:
        """Whether the native part is made for these buckets."""
        as_many = self.native is not None and len(buckets) == len(self.layout)
        return as_many and all(self.expects(place, bucket) for place, bucket in enumerate(buckets))

    def build(self, buckets: "list[Bucket]", parameters: "list[tuple[str, int]]") -> None:
        """The engine for these buckets, that goes on where the last one was. All ranks call it together. ``parameters``
        are names and dimensions in the order of the model, for methods that send its output layer in another way."""
        group = self.connect()
        group.check()
        agree(group, {f"bucket {place}": bucket.told() for place, bucket in enumerate(buckets)})
        layout = [bucket.layers for bucket in buckets]
        device = buckets[0].work.device if buckets else CPU
        # Also where it is only one of the methods that auto may choose.
        if "fft" in re.split(r"[:=|,;]", self._settings.method):
            # Other libraries, and other cards, transform with other last bits: the replicas would drift apart.
            where = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
            agree(group, {"where frequencies are made": where})
        # DDP's second buckets hold the same layers as its first: what was kept moves over without a copy.
        moves = self.native is not None and _by_name(layout) == _by_name(self.layout) and device == self.device
        state = None if moves else self._pending or self._saved()
        if self._pending is not None:
            # Where no model was given, only now can it be told whether the state is this model's.
            state, *_ = _state.fitted(self._pending, _shapes(layout), self._settings.has_momentum, self._strict)
        # Not to be lost with the group.
        self._pending = state
        self.layout, self.device = layout, device
        layers = [[(layer.name, layer.shape) for layer in layers] for layers in layout]
        settings = self._settings
        try:
            if self.native is not None and moves:
                self.native.relayout(layers, parameters)
                return
            self.native = None
            self.native = _native.Synchronizer(
                group,
                settings.method,
                layers,
                threads=settings.threads or torch.get_num_threads(),
                check_replicas_every=settings.check_replicas_every,
                by_samples=settings.by_samples,
                check_first=settings.check_first,
                device=device.index if device.type == "cuda" else None,
                run_ahead=bool(settings.run_ahead),
                total_steps=settings.total_steps,
                parameters=parameters,
            )
        except GroupLost:
            if group.interrupted:
                raise KeyboardInterrupt from None
            raise
        if state is not None:
            self.restore(state)
        self._pending = None

    def fail(self, reason: str) -> None:
        """Gives up, and tells the other ranks why."""
        if self.native is not None:
            self.native.give_up(reason)
        if self.group is not None:
            self.group.abandon(reason)

    def close(self) -> None:
        """Gives memory and process group back."""
        self.closed = True
        self.native = None
        if self.group is not None:
            self.group.close()

    def place(self) -> "tuple[int, int]":
        """This rank and how many there are, also before there is a group; zeros where there can't be one yet."""
        if self.group is not None:
            return self.group.rank, self.group.size
        if not (dist.is_available() and dist.is_initialized()):
            return 0, 0
        parent = self._settings.process_group
        return dist.get_rank(parent), dist.get_world_size(parent)

    def saved(self, shapes: "dict[str, tuple[int, ...]]") -> "dict[str, Any]":
        """This rank's state, flat, with what is kept of each of these parameters. After a group was lost it is that of
        the last step that was completed: what the failed one has put into the residual is taken out again."""
        if self.closed:
            raise Error("the synchronizer was closed, and what it had kept is gone; save before close()")
        state = _state.complete(self.kept() or self._empty(), shapes, self._settings.has_momentum)
        return state if self.undelivered is None else self.undelivered.added_to(state)

    def kept(self) -> "Optional[dict[str, Any]]":
        """The same as it is; `None` if nothing was kept yet."""
        return self._pending or self._saved()

    def has_kept(self) -> bool:
        """Whether there is anything to save."""
        return not self.closed and (self._pending is not None or self.native is not None)

    def _empty(self) -> "dict[str, Any]":
        return _state.empty(self._settings.method, *self.place())

    def blank(self, ranks: int, shapes: "dict[str, tuple[int, ...]]") -> "dict[str, Any]":
        """A state of zeros, with entries of those of so many ranks whose residuals go to this one."""
        group = self.connect()
        state = _state.pack(_state.empty(self._settings.method, 0, ranks))
        del state[_state.key(0)]
        # For one that gets nothing, what rank 0 had shows what there is.
        for old in sources(group.rank, group.size, ranks, ()) or [0]:
            flat = _state.empty(self._settings.method, old, ranks)
            state.update(_state.pack(_state.complete(flat, shapes, self._settings.has_momentum)))
        return state

    def gather(self, state: "dict[str, Any]", everywhere: bool) -> "Optional[dict[str, Any]]":
        """The states of all ranks in one, on rank 0 or everywhere; `None` on the others."""
        group = self.connect()
        group.check()
        mine = io.BytesIO()
        torch.save(state, mine)
        everybody = group.gather_unequal(mine.getvalue(), everywhere)
        if not everybody:
            return None
        joined: "dict[str, Any]" = {}
        for theirs in everybody:
            joined.update(torch.load(io.BytesIO(theirs), map_location="cpu", weights_only=True))
        return joined

    def restore(self, state: "dict[str, Any]", strict: bool = True) -> None:
        """Goes on from a flat state that was checked; as soon as the buckets are known."""
        if self.native is None:
            self._pending, self._strict = state, strict
            return
        state = _state.complete(state, _shapes(self.layout), self._settings.has_momentum)
        self.native.restore(_state.for_engine(state, _by_name(self.layout)))

    def _saved(self) -> Optional["dict[str, Any]"]:
        if self.native is None:
            return None
        return _state.to_tensors(self.native.save(), _by_name(self.layout))


def _shapes(layout: "list[list[Layer]]") -> "dict[str, tuple[int, ...]]":
    return {layer.name: layer.shape for layers in layout for layer in layers}


def _by_name(layout: "list[list[Layer]]") -> "dict[str, Layer]":
    return {layer.name: layer for layers in layout for layer in layers}
