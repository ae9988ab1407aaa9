"""Buckets: flat runs of gradients of some parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional

import torch

from thinwire.errors import BadArgument

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Layer(NamedTuple):
    """A parameter in a bucket."""

    name: str
    shape: "tuple[int, ...]"
    #: How its elements lie in the bucket: those of channels-last weights are in another order.
    stride: "tuple[int, ...]"

    def view(self, flat: torch.Tensor, start: int = 0) -> torch.Tensor:
        """The parameter's part of a flat run, with its shape."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + start)

    @property
    def elements(self) -> int:
        return torch.Size(self.shape).numel()


def layer_of(name: str, parameter: torch.Tensor) -> Layer:
    """The layer as DDP lays it out: as the parameter lies in memory if it has no gaps there, otherwise row by row."""
    return Layer(name, tuple(parameter.shape), torch.empty_like(parameter, device="meta").stride())


def fill(flat: torch.Tensor, layers: "list[Layer]", tensors: "list[torch.Tensor]") -> None:
    """Copies a tensor for each layer into the flat run."""
    start = 0
    for layer, tensor in zip(layers, tensors):
        layer.view(flat, start).copy_(tensor.detach())
        start += layer.elements


@dataclass
class Bucket:
    """One bucket of one step."""

    #: Its parameters, in their order.
    layers: "list[Layer]"
    #: The flat gradient; its mean takes its place.
    gradient: torch.Tensor
    #: The weights in the same order, where the method looks at them.
    weights: Optional[torch.Tensor] = None

    def __post_init__(self) -> None:
        check_gradient(self.gradient, self.layers[0].name if self.layers else "a bucket")
        #: What the engine works on: 32-bit floats.
        self.work = self.gradient.detach()
        if self.work.dtype != torch.float32 or not self.work.is_contiguous():
            self.work = self.work.to(torch.float32).contiguous()

    def told(self) -> str:
        """What must be the same on all ranks."""
        dtype = str(self.gradient.dtype).removeprefix("torch.")
        names = (f"{layer.name} {list(layer.shape)} in steps of {list(layer.stride)}" for layer in self.layers)
        return f"{dtype}: {', '.join(names)}"

    def write_back(self, factor: float) -> None:
        """The gradient becomes what the engine has made of it, times `factor`."""
        if factor != 1.0:
            self.work.mul_(factor)
        if self.gradient.dtype == torch.float16:
            # What was kept for long may be more than its numbers can hold; an infinity would lose all of it.
            largest = torch.finfo(torch.float16).max
            self.work.clamp_(-largest, largest)
        if self.work.data_ptr() != self.gradient.data_ptr():
            self.gradient.copy_(self.work)


def check_gradient(gradient: torch.Tensor, where: str) -> None:
    """Fails for gradients, or parameters that will have such gradients, that can't be compressed."""
    if gradient.device.type != "cpu":
        raise BadArgument(
            f"the gradient of {where} is on {gradient.device}; this version compresses gradients in the CPU's memory"
        )
    if gradient.layout != torch.strided:
        raise BadArgument(f"the gradient of {where} is {gradient.layout}; expected a dense one (sparse=False)")
    if gradient.dtype not in _DTYPES:
        raise BadArgument(f"the gradient of {where} is {gradient.dtype}; expected float32, float16 or bfloat16")
