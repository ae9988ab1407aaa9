"""Gradients that can't be compressed: 64-bit, sparse. They are averaged dense, by torch's own all-reduce.

They keep no residual and take no part in a step's checks: a NaN passes on to the optimiser, as it does with plain DDP.
They are summed after the compressed buckets, on the process group for what is exchanged between steps, so that the
order of collectives is the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thinwire.torch._group import TorchGroup


@dataclass
class Uncompressed:
    """One such gradient of one step, or several of the same dtype in one flat run."""

    #: Whose gradient it is.
    names: "list[str]"
    gradient: torch.Tensor
    #: Why it can't be compressed.
    reason: str

    # Not on a detached tensor: a sparse one would get other indices, and this one would not.
    @torch.no_grad()
    def average(self, group: TorchGroup, weight: float, total: float) -> None:
        """The gradient becomes the mean over all ranks, each counted by its weight of this total."""
        if weight != 1.0:
            self.gradient.mul_(weight)
        group.sum(self.gradient)
        self.gradient.div_(total)

    @torch.no_grad()
    def discard(self) -> None:
        """For a step that is skipped."""
        self.gradient.zero_()

    @property
    def bytes(self) -> int:
        """What an all-reduce moves: all elements, or the indices and values of a sparse gradient."""
        gradient = self.gradient.detach()
        if gradient.layout == torch.strided:
            return gradient.numel() * gradient.element_size()
        stored = gradient.coalesce()
        return sum(part.numel() * part.element_size() for part in (stored.indices(), stored.values()))
