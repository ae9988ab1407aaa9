"""Momentum twice: in the method's memory and in the optimiser."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def momentum_of(optimizer: Any, parameters: "set[torch.Tensor]") -> "list[str]":
    """The settings by which an optimiser has momentum of its own for some of these parameters, as text."""
    found = []
    for group in optimizer.param_groups:
        if parameters and not parameters.intersection(group["params"]):
            continue
        if group.get("momentum"):
            found.append(f"momentum={group['momentum']}")
        elif group.get("betas") and group["betas"][0]:
            found.append(f"betas={tuple(group['betas'])}")
    return sorted(set(found))


def explain(method: str, momentum: float, optimizer: Any, found: "list[str]") -> None:
    name = type(optimizer).__name__
    warnings.warn(
        f"{method} applies a momentum of {momentum:g} before it selects (momentum correction), and {name} has"
        f" {', '.join(found)} of its own: momentum would be applied twice. Give the optimiser none"
        f" (torch.optim.SGD with momentum=0), or the method none (momentum=0 after the colon).",
        stacklevel=3,
    )


def watch(core: "weakref.ref[Any]", method: str, momentum: float, optimizer: Optional[Any]) -> None:
    """Warns, once, when an optimiser with momentum of its own is used on the parameters of `core`."""
    if optimizer is not None:
        found = momentum_of(optimizer, set())
        if found:
            explain(method, momentum, optimizer, found)
        return
    looking = True

    def look(stepping: Any, arguments: Any, keywords: Any) -> None:
        nonlocal looking
        owner = core() if looking else None
        if owner is None:
            return
        ours = set(owner._names)
        if any(ours.intersection(group["params"]) for group in stepping.param_groups):
            # Not taken off: torch is walking over its hooks at this moment.
            looking = False
            found = momentum_of(stepping, ours)
            if found:
                explain(method, momentum, stepping, found)

    handle = register_optimizer_step_pre_hook(look)
    weakref.finalize(core(), handle.remove).atexit = False
