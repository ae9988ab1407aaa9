"""A small training for tests: a model, data that differ between ranks, steps."""

from __future__ import annotations

import contextlib
import zlib
from datetime import timedelta
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from thinwire.torch import _group


def mlp(hidden: int = 32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 4))


def everything(method: str, density: float = 0.05) -> "dict[str, Any]":
    """Settings by which a method compresses small layers too."""
    known = thinwire.methods()[method.split(":")[0]].parameters
    wanted = {"density": density, "dense_up_to": 0, "dense_one_dimensional": False}
    return {name: value for name, value in wanted.items() if name in known}


def batch(rank: int, step: int, samples: int = 8) -> "tuple[torch.Tensor, torch.Tensor]":
    """Inputs, and what a fixed function makes of them."""
    generator = torch.Generator().manual_seed(1_000_003 * rank + step)
    x = torch.randn(samples, 8, generator=generator)
    teacher = torch.randn(8, 4, generator=torch.Generator().manual_seed(5))
    return x, torch.tanh(x @ teacher)


@contextlib.contextmanager
def step_timeout(seconds: float) -> "Iterator[None]":
    """Another default than two minutes. With ``timeout=`` the ranks would have no longer to meet, which takes long on
    a busy machine."""
    default, _group.TIMEOUT = _group.TIMEOUT, timedelta(seconds=seconds)
    try:
        yield
    finally:
        _group.TIMEOUT = default


def train(
    rank: int,
    ddp: DistributedDataParallel,
    steps: range,
    optimizer: Optional[torch.optim.Optimizer] = None,
    each: "Optional[Callable[[int], Any]]" = None,
) -> "list[float]":
    """The losses of some steps."""
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), 0.1)
    losses = []
    for step in steps:
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        if each is not None:
            each(step)
        optimizer.step()
        losses.append(loss.item())
    return losses


def checksum(model: nn.Module) -> int:
    """Of all bits of the parameters."""
    total = 0
    for parameter in model.parameters():
        total = zlib.crc32(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes(), total)
    return total
