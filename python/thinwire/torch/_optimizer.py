"""Optimisers that do not go with a method: momentum twice, and a second moment under a sparse exchange."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from thinwire.errors import BadArgument
from thinwire.torch._adamw import AdamW

#: In the names of optimisers that divide by a root of squares they have seen.
SECOND_MOMENT = ("adam", "lamb", "rmsprop", "adagrad", "adadelta", "adafactor")


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


def has_second_moment(optimizer: Any) -> bool:
    name = type(optimizer).__name__.lower()
    return any(part in name for part in SECOND_MOMENT)


def is_sgd(optimizer: Any) -> bool:
    """Whether it is known to keep its accuracy with a sparse method."""
    named = "sgd" in type(optimizer).__name__.lower() and not has_second_moment(optimizer)
    return named or isinstance(optimizer, torch.optim.SGD)


def explain(method: str, momentum: float, sparse: bool, optimizer: Any, parameters: "set[torch.Tensor]") -> None:
    """Warns of what does not go together."""
    name = type(optimizer).__name__
    found = momentum_of(optimizer, parameters) if momentum else []
    if found:
        warnings.warn(
            f"{method} applies a momentum of {momentum:g} before it selects (momentum correction), and {name} has"
            f" {', '.join(found)} of its own: momentum would be applied twice. Give the optimiser none"
            f" (torch.optim.SGD with momentum=0), or the method none (momentum=0 after the colon).",
            stacklevel=3,
        )
    if sparse and isinstance(optimizer, AdamW):
        raise BadArgument(
            f"thinwire.torch.AdamW steps on parameters of {method}, which does not know of it; expected"
            " compress(..., optimizer=...) with this optimizer"
        )
    if sparse and has_second_moment(optimizer):
        warnings.warn(
            f"{method} sends a part of the gradient in each step. A coordinate that comes late comes large, and the"
            f" second moment of {name} grows with its square, so training slows down: a GPT that reaches a loss of 0.99"
            f" with DDP and AdamW ended at 2.27 with topk at 1 %. Leave the method out, or use 'quantized', with"
            f" {name}; or use thinwire.torch.AdamW, or torch.optim.SGD, with {method}.",
            stacklevel=3,
        )


def watch(core: "weakref.ref[Any]", method: str, momentum: float, sparse: bool, optimizer: Optional[Any]) -> None:
    """Warns, once, when an optimiser that does not go with the method is used on the parameters of `core`."""
    if optimizer is not None:
        explain(method, momentum, sparse, optimizer, set())
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
            explain(method, momentum, sparse, stepping, ours)

    handle = register_optimizer_step_pre_hook(look)
    weakref.finalize(core(), handle.remove).atexit = False
