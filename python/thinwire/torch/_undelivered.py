"""Means that DDP does not copy into ``.grad``: those of parameters that no rank has used in a step.

With ``find_unused_parameters`` DDP leaves ``.grad`` of such a parameter as it is. The residual of an earlier step may
still have been sent in this one, and its mean would be lost. The mean is the same on every rank, so every rank keeps it
and adds it to the next mean, until the parameter is used again. This needs no communication.

DDP all-reduces how often each parameter was used. The counts are valid once the backward pass is over; reading them
synchronises with a GPU, as DDP itself does for them in every step.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch

from thinwire.errors import Error
from thinwire.torch._bucket import Bucket, Layer


class Undelivered:
    """The means of unused parameters, by name. Invariant: the sum of all means = what DDP has copied + what is kept."""

    def __init__(self, ddp: Any, names: "dict[torch.Tensor, str]") -> None:
        #: Weak: DDP owns the reducer, which owns the hook's state, which owns this.
        self._ddp = weakref.ref(ddp)
        #: The parameters of DDP's buckets: those that were trained when the model was wrapped.
        self._shown: "set[torch.Tensor]" = set()
        #: The same in the order in which DDP counts them.
        self._counted: "list[torch.Tensor]" = []
        self._names = names
        self.kept: "dict[str, torch.Tensor]" = {}
        #: The buckets of a step whose counts were not read yet, and the loss scale of their gradients.
        self._pending: "list[tuple[Bucket, Any]]" = []
        ddp.register_forward_pre_hook(_SettleBeforeForward(self))

    def show(self, parameters: "list[torch.Tensor]") -> None:
        """DDP has these in a bucket."""
        self._shown.update(parameters)

    def add_to(self, bucket: Bucket) -> None:
        """Adds what was kept to the means of a bucket."""
        if self.kept:
            for layer, mean in _layers(bucket):
                if layer.name in self.kept:
                    mean.add_(self.kept[layer.name].to(mean.device))

    def handed_over(self, bucket: Bucket, scale: Any) -> None:
        """DDP gets these means. Its counts tell later which of them it copied into ``.grad``."""
        self._pending.append((bucket, scale))

    def settle(self) -> None:
        """Keeps the means that DDP has not copied. To be called between the end of DDP's backward pass and the next
        forward pass, and not from a hook within a backward pass: there the reducer holds the lock that this takes."""
        pending, self._pending = self._pending, []
        ddp = self._ddp()
        # With a static graph DDP does not count, and unused parameters are the same in every step: nothing is sent.
        if not pending or ddp is None or ddp.static_graph:
            return
        counts = ddp.reducer._get_local_used_map().tolist()
        if len(self._counted) != len(counts):
            self._counted = _in_order(ddp, self._shown)
        if len(self._counted) != len(counts):
            raise Error(
                f"DDP counts the use of {len(counts)} parameters, and {len(self._counted)} of these are in the model:"
                " a parameter was replaced after the model was wrapped. Wrap it in DistributedDataParallel anew"
            )
        unused = {self._names[p]: p for p, count in zip(self._counted, counts) if not count and p in self._names}
        left: "list[tuple[str, torch.Tensor, Any]]" = []
        for bucket, scale in pending:
            for layer, mean in _layers(bucket):
                parameter = unused.get(layer.name)
                if parameter is None or _is_in(parameter.grad, bucket):
                    self.kept.pop(layer.name, None)
                else:
                    left.append((layer.name, mean, scale))
        self._keep(left)

    def _keep(self, left: "list[tuple[str, torch.Tensor, Any]]") -> None:
        if not left:
            return
        # Parameters that are never used have means of zeros. One read for all of them: it waits for a GPU.
        nonzero = torch.stack([mean.any() for _, mean, _ in left]).tolist()
        for (name, mean, scale), keep in zip(left, nonzero):
            if keep:
                self.kept[name] = mean.to(torch.float32, copy=True).div_(scale)
            else:
                self.kept.pop(name, None)

    def forget(self) -> None:
        """For a state that is loaded."""
        self.kept, self._pending = {}, []

    def added_to(self, state: "dict[str, Any]") -> "dict[str, Any]":
        """The state with the kept means added to its residual: on every rank, so their mean over ranks is the same."""
        residual = dict(state["residual"])
        for name, values in self.kept.items():
            kept = residual.get(name)
            residual[name] = values.to("cpu", copy=True) if kept is None else kept + values.to(kept)
        return {**state, "residual": residual}


def _in_order(ddp: Any, parameters: "set[torch.Tensor]") -> "list[torch.Tensor]":
    """Parameters in the order of DDP's constructor: module by module, each once. Which of them are trained may have
    changed since."""
    ordered = (parameter for module in ddp.module.modules() for parameter in module.parameters(recurse=False))
    return [parameter for parameter in dict.fromkeys(ordered) if parameter in parameters]


class _SettleBeforeForward:
    """For the passes of a rank that has run out of inputs (Join): they have no end at which to settle. A copy of the
    model does nothing here: its hook's state makes another."""

    def __init__(self, undelivered: Optional[Undelivered] = None) -> None:
        self._undelivered = None if undelivered is None else weakref.ref(undelivered)

    def __call__(self, *_: Any) -> None:
        undelivered = None if self._undelivered is None else self._undelivered()
        if undelivered is not None:
            undelivered.settle()

    def __reduce__(self) -> "tuple[type, tuple[()]]":
        return _SettleBeforeForward, ()


def _layers(bucket: Bucket) -> "list[tuple[Layer, torch.Tensor]]":
    parts, start = [], 0
    for layer in bucket.layers:
        parts.append((layer, layer.view(bucket.work, start)))
        start += layer.elements
    return parts


def _is_in(gradient: Any, bucket: Bucket) -> bool:
    """Whether a gradient is a view of the bucket (``gradient_as_bucket_view``), so that it has the mean already."""
    storage = bucket.gradient.untyped_storage()
    return gradient is not None and gradient.untyped_storage().data_ptr() == storage.data_ptr()
