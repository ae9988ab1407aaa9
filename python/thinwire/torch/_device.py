"""Where gradients are, and where the engine works on them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import pathlib
import warnings
from typing import Iterable

import torch

from thinwire import _native
from thinwire.errors import BadArgument

CPU = torch.device("cpu")


def engine_device(gradients: torch.device) -> torch.device:
    """Where the engine works on gradients that are on this device: there, or in the CPU's memory if it can't."""
    return gradients if gradients.type == "cuda" and not _staged(gradients.index or 0) else CPU


@functools.lru_cache(maxsize=None)
def _staged(index: int) -> bool:
    """Whether gradients on this GPU take the way through the CPU's memory. Says why, once."""
    _load_nvrtc()
    reason = _native.cuda_unusable(index)
    if reason is not None:
        warnings.warn(
            f"the gradients on the GPU are copied to the CPU, compressed there and copied back: {reason}", stacklevel=2
        )
    return reason is not None


def _load_nvrtc() -> None:
    """Loads the compiler of the kernels from the package it comes in with torch, so that the engine finds it by name:
    torch itself loads it only when it needs it."""
    for folder in getattr(importlib.util.find_spec("nvidia"), "submodule_search_locations", None) or ():
        for file in sorted(pathlib.Path(folder).glob("*/lib/libnvrtc.so.*")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(file))
                return


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
