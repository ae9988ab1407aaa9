"""Means that DDP does not hand on: those of parameters that no rank has used in a step.

With ``find_unused_parameters`` DDP leaves ``.grad`` of such a parameter as it is. The residual of an earlier step may
still have been sent in this one, and its mean would be lost. It is the same on every rank, so every rank keeps it and
adds it to the next mean, until the parameter is used again. Nothing is exchanged for that.

DDP itself counts on all ranks which parameters were used; its counts can be read once the backward pass is over.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from thinwire.torch._bucket import Bucket, Layer


class Undelivered:
    """What was kept for unused parameters, by name. Invariant: delivered + kept = the sum of all means."""

    def __init__(self, ddp: Any, names: "dict[torch.Tensor, str]") -> None:
        #: It owns the reducer, which owns the hook's state, which owns this.
        self._ddp = weakref.ref(ddp)
        #: In the order in which DDP counts them.
        self._parameters: "list[torch.Tensor]" = ddp._build_params_for_reducer()[0]
        self._names = names
        self.kept: "dict[str, torch.Tensor]" = {}
        #: The buckets of a step whose counts were not read yet, with the loss scale they carry.
        self._pending: "list[tuple[Bucket, Any]]" = []

    def add_to(self, bucket: Bucket) -> None:
        """Adds what was kept to the means of a bucket."""
        if self.kept:
            for layer, mean in _layers(bucket):
                if layer.name in self.kept:
                    mean.add_(self.kept[layer.name].to(mean.device))

    def handed_over(self, bucket: Bucket, scale: Any) -> None:
        """DDP gets these means; which of them it hands on, its counts will tell."""
        self._pending.append((bucket, scale))

    def settle(self) -> None:
        """Takes in the counts of the last step. Comes after DDP has finished it and before it begins another."""
        pending, self._pending = self._pending, []
        ddp = self._ddp()
        if not pending or ddp is None:
            return
        counts = ddp.reducer._get_local_used_map().tolist()
        unused = {self._names[p]: p for p, count in zip(self._parameters, counts) if not count and p in self._names}
        for bucket, scale in pending:
            for layer, mean in _layers(bucket):
                parameter = unused.get(layer.name)
                if parameter is None or _is_in(parameter.grad, bucket):
                    self.kept.pop(layer.name, None)
                elif mean.any():
                    self.kept[layer.name] = mean.to(torch.float32, copy=True).div_(scale)

    def forget(self) -> None:
        """Another state is loaded."""
        self.kept, self._pending = {}, []

    def added_to(self, state: "dict[str, Any]") -> "dict[str, Any]":
        """The state with what was kept in its residual: in that of every rank, so in their mean."""
        residual = dict(state["residual"])
        for name, values in self.kept.items():
            kept = residual.get(name)
            residual[name] = values.to("cpu", copy=True) if kept is None else kept + values.to(kept)
        return {**state, "residual": residual}


def _layers(bucket: Bucket) -> "list[tuple[Layer, torch.Tensor]]":
    parts, start = [], 0
    for layer in bucket.layers:
        parts.append((layer, layer.view(bucket.work, start)))
        start += layer.elements
    return parts


def _is_in(gradient: Any, bucket: Bucket) -> bool:
    """Whether a gradient lies in the bucket itself (``gradient_as_bucket_view``), so that the mean has reached it."""
    storage = bucket.gradient.untyped_storage()
    return gradient is not None and gradient.untyped_storage().data_ptr() == storage.data_ptr()
