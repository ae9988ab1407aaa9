"""A model whose gradients are given, to the bit, on every device: so that a GPU can be compared with the CPU."""

from __future__ import annotations

import os
import zlib
from typing import Any, Optional

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw

DEVICE = os.environ.get("THINWIRE_TEST_DEVICE", "cuda")

#: `redsync` selects from the first as a small matrix, sends the second dense, and takes the others by an exact and by a
#: trimmed top-k.
SHAPES = {"conv": (32, 16, 3, 3), "bias": (400,), "middle": (120, 100), "wide": (400, 500)}
#: Beyond 4,194,304 elements it searches for a threshold.
LARGE = {"bias": (400,), "large": (2050, 2050)}


class Given(nn.Module):
    """The gradient of each parameter is what is given for it."""

    def __init__(self, shapes: "dict[str, Any]" = SHAPES, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        for name, shape in shapes.items():
            values = torch.randn(shape, generator=generator).to(dtype)
            if len(shape) == 4:
                values = values.contiguous(memory_format=torch.channels_last)
            self.register_parameter(name, nn.Parameter(values))

    def forward(self, gradients: "list[torch.Tensor]") -> torch.Tensor:
        pairs = zip(self.parameters(), gradients)
        return torch.stack([(parameter * gradient).float().sum() for parameter, gradient in pairs]).sum()


def gradients(model: nn.Module, rank: int, step: int) -> "list[torch.Tensor]":
    """Those of a rank in a step: each layer with its own scale, which drifts, and a part that stays. They come from
    pinned memory, which is fine also while the GPU waits."""
    made = []
    for place, parameter in enumerate(model.parameters()):
        lasting = torch.Generator().manual_seed(place)
        fresh = torch.Generator().manual_seed(1_000_003 * rank + 101 * step + place)
        values = 0.3 * torch.randn(parameter.shape, generator=lasting) + torch.randn(parameter.shape, generator=fresh)
        values = (values * (0.5 + place) * (1 + 0.1 * step)).to(parameter.dtype)
        values = values.pin_memory() if parameter.is_cuda else values
        made.append(values.to(parameter.device, non_blocking=True))
    return made


def apply(model: nn.Module) -> None:
    """A step of SGD that rounds alike everywhere: a factor that is a power of two is exact."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad * 0.125)


def flat(model: nn.Module) -> torch.Tensor:
    """All gradients, in the CPU's memory."""
    return torch.cat([parameter.grad.detach().float().cpu().flatten() for parameter in model.parameters()])


def means(
    rank: int,
    device: str,
    method: str,
    settings: "Optional[dict[str, Any]]" = None,
    dtype: torch.dtype = torch.float32,
    shapes: "dict[str, Any]" = SHAPES,
    steps: int = 5,
    process_group: Optional[Any] = None,
) -> "tuple[list[torch.Tensor], dict[str, torch.Tensor]]":
    """The mean gradients of some steps with DDP, and what is kept after them."""
    model = Given(shapes, dtype).to(device)
    # Several buckets.
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.1, process_group=process_group)
    sync = tw.compress(ddp, method, check_replicas_every=2, **{**small(method), **(settings or {})})
    seen = []
    for step in range(steps):
        model.zero_grad()
        ddp(gradients(model, rank, step)).backward()
        seen.append(flat(model))
        apply(model)
    kept = sync.residual()
    assert sync.report().steps == steps
    sync.close()
    return seen, kept


def small(method: str) -> "dict[str, Any]":
    """1 %, where the method has a density: the layers are small."""
    name = method.split(":")[0]
    return {"density": 0.01} if "density" in thinwire.methods()[name].parameters and "density" not in method else {}


def bits(tensors: "list[torch.Tensor]") -> int:
    total = 0
    for tensor in tensors:
        total = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), total)
    return total


def difference(found: "list[torch.Tensor]", expected: "list[torch.Tensor]") -> float:
    """The largest difference of two, as a part of their norm."""
    parts = [(a - b).norm() / b.norm().clamp_min(1e-30) for a, b in zip(found, expected)]
    return max(float(part) for part in parts)
