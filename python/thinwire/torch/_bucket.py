"""Buckets: flat runs of gradients of some parameters."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple, Optional, Union

import torch

from thinwire.errors import BadArgument
from thinwire.torch._device import engine_device

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


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers in the same memory; any other as it is."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def layer_of(name: str, parameter: torch.Tensor) -> Layer:
    """The layer as DDP lays it out: as the parameter lies in memory if it has no gaps there, otherwise row by row."""
    parameter = real(parameter)
    shape = tuple(parameter.shape)
    return Layer(name, shape, _stride(shape, parameter.stride()))


# Asked for every parameter in every step.
@functools.lru_cache(maxsize=None)
def _stride(shape: "tuple[int, ...]", stride: "tuple[int, ...]") -> "tuple[int, ...]":
    return torch.empty_like(torch.empty_strided(shape, stride, device="meta")).stride()


def views(flat: torch.Tensor, layers: "list[Layer]") -> "list[torch.Tensor]":
    """The part of each layer in a flat run."""
    parts, start = [], 0
    for layer in layers:
        parts.append(layer.view(flat, start))
        start += layer.elements
    return parts


def copy(into: "list[torch.Tensor]", tensors: "list[torch.Tensor]") -> None:
    """Copies tensors into others, on a GPU with few kernels for all."""
    if into:
        torch._foreach_copy_(into, [tensor.detach() for tensor in tensors])


def fill(flat: torch.Tensor, layers: "list[Layer]", tensors: "list[torch.Tensor]") -> None:
    """Copies a tensor for each layer into the flat run."""
    copy(views(flat, layers), [real(tensor) for tensor in tensors])


@dataclass
class Bucket:
    """One bucket of one step."""

    #: Its parameters, in their order.
    layers: "list[Layer]"
    #: The flat gradient, a complex one as pairs of real numbers; its mean takes its place.
    gradient: torch.Tensor
    #: The weights in the same order, 32-bit floats beside the gradient, where the method looks at them.
    weights: Optional[torch.Tensor] = None
    #: Whether the gradient carries a loss scale.
    scaled: bool = False

    def __post_init__(self) -> None:
        self.gradient = gradient = real(self.gradient.detach()).reshape(-1)
        check_device(gradient, self.name)
        device = engine_device(gradient.device)
        #: What the engine works on: 32-bit floats, or on a GPU the gradient itself. What carries a scale is freed from
        #: it first, for which 16 bits are too few.
        self.work = gradient
        if device != gradient.device:
            # Waits for the GPU.
            self.work = torch.empty(gradient.shape, dtype=torch.float32, device="cpu", pin_memory=True).copy_(gradient)
            self.weights = None if self.weights is None else self.weights.to(device)
        elif device.type == "cpu" or self.scaled:
            self.work = gradient.to(torch.float32).contiguous()
        else:
            self.work = gradient.contiguous()

    @property
    def name(self) -> str:
        return self.layers[0].name if self.layers else "a bucket"

    def told(self) -> str:
        """What must be the same on all ranks."""
        dtype = str(self.gradient.dtype).removeprefix("torch.")
        names = (f"{layer.name} {list(layer.shape)} in steps of {list(layer.stride)}" for layer in self.layers)
        # The checksum of the replicas goes over what is worked on: a GPU sums 16 bits where they lie, a CPU a copy.
        work = str(self.work.dtype).removeprefix("torch.")
        return f"{dtype}, summed as {work}: {', '.join(names)}"

    def scale(self, factor: "Union[float, torch.Tensor]") -> None:
        """Multiplies what the engine works on."""
        if isinstance(factor, torch.Tensor) or factor != 1.0:
            self.work.mul_(factor)

    def write_back(self, factor: "Union[float, torch.Tensor]") -> None:
        """The gradient becomes what the engine has made of it, times `factor`."""
        self.scale(factor)
        if self.gradient.dtype == torch.float16:
            # What was kept for long may be more than its numbers can hold; an infinity would lose all of it.
            largest = torch.finfo(torch.float16).max
            self.work.clamp_(-largest, largest)
        if self.work.data_ptr() != self.gradient.data_ptr():
            self.gradient.copy_(self.work)


def check_device(gradient: torch.Tensor, where: str) -> None:
    """Fails for gradients, or parameters that will have such gradients, that the engine can't reach."""
    if gradient.device.type not in ("cpu", "cuda"):
        raise BadArgument(f"the gradient of {where} is on {gradient.device}; expected the CPU or a CUDA device")


def obstacle(gradient: torch.Tensor) -> Optional[str]:
    """Why this gradient, or that of this parameter, can't be compressed; `None` if it can."""
    if gradient.layout != torch.strided:
        return "sparse"
    # Half-precision complex numbers are too few to be worth a way of their own.
    if gradient.dtype in _DTYPES or gradient.dtype == torch.complex64:
        return None
    return str(gradient.dtype).removeprefix("torch.")
