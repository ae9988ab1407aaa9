"""Where gradients are, and where the engine works on them."""

from __future__ import annotations

import functools
import warnings
from typing import Iterable

import torch

from thinwire import _native
from thinwire.errors import BadArgument

CPU = torch.device("cpu")


def engine_device(gradients: torch.device) -> torch.device:
    """Where the engine works on gradients that are on this device: there, or in the CPU's memory if it can't."""
    return gradients if gradients.type == "cuda" and not _staged() else CPU


@functools.lru_cache(maxsize=None)
def _staged() -> bool:
    """Whether gradients on a GPU take the way through the CPU's memory. Says why, once."""
    reason = _native.cuda_unusable()
    if reason is not None:
        warnings.warn(
            f"the gradients on the GPU are copied to the CPU, compressed there and copied back: {reason}", stacklevel=2
        )
    return reason is not None


def one_device(named: "Iterable[tuple[str, torch.Tensor]]") -> None:
    """Fails unless all of these are on the same device: a rank has one engine, and it works on one device."""
    first = None
    for name, tensor in named:
        if first is None:
            first = name, tensor.device
        elif tensor.device != first[1]:
            raise BadArgument(
                f"{first[0]} is on {first[1]} and {name} is on {tensor.device}; expected all trained parameters of a"
                " rank on one device"
            )
