"""Gradients that can't be compressed: 64-bit, sparse. They are averaged dense, by torch's own all-reduce.

They have no residual and are not checked for NaN: a NaN reaches the optimiser, as it does with plain DDP. Only with a
scaler they are: it skips the step then, and so does the engine. They are summed before the compressed buckets, on the
second process group, so that the order of collectives is the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thinwire.torch._group import TorchGroup


@dataclass
class Uncompressed:
    """One such gradient of one step, or several of the same dtype in one flat tensor."""

    #: Names of the parameters.
    names: "list[str]"
    gradient: torch.Tensor
    #: Why it can't be compressed.
    reason: str
    #: The size of this rank's gradient, once it was averaged.
    bytes: int = 0

    # In place on the tensor itself: a detached alias of a sparse tensor would get indices of its own.
    @torch.no_grad()
    def average(self, group: TorchGroup, weight: float, total: float) -> None:
        """Replaces the gradient by its mean over all ranks, weighted by ``weight / total`` of each."""
        self.bytes = self._size()
        if weight != 1.0:
            self.gradient.mul_(weight)
        group.sum(self.gradient)
        self.gradient.div_(total)

    @torch.no_grad()
    def discard(self) -> None:
        """Zeros the gradient of a skipped step."""
        self.gradient.zero_()

    def is_finite(self) -> bool:
        """Whether all elements are. Waits for a GPU."""
        gradient = self.gradient.detach()
        values = gradient if gradient.layout == torch.strided else gradient._values()
        return bool(torch.isfinite(values).all())

    @torch.no_grad()
    def overflow(self) -> None:
        """Fills the gradient of a skipped step with infinity, one element of a sparse one, for a scaler to find."""
        if self.gradient.layout == torch.strided:
            self.gradient.fill_(float("inf"))
        elif self.gradient.numel():
            like, sparse = self.gradient, self.gradient.sparse_dim()
            indices = torch.zeros((sparse, 1), dtype=torch.int64, device=like.device)
            values = torch.full((1, *like.shape[sparse:]), float("inf"), dtype=like.dtype, device=like.device)
            like.copy_(torch.sparse_coo_tensor(indices, values, like.shape))

    def _size(self) -> int:
        """Bytes of all elements, or of the indices and values of a sparse gradient."""
        gradient = self.gradient.detach()
        if gradient.layout == torch.strided:
            return gradient.numel() * gradient.element_size()
        stored = gradient.coalesce()
        return sum(part.numel() * part.element_size() for part in (stored.indices(), stored.values()))
