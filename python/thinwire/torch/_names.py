"""The names by which states keep parameters: those of the model itself, whatever it is wrapped in."""

from __future__ import annotations

from typing import TypeVar

import torch

T = TypeVar("T")

#: What torch.compile and activation checkpointing put into the names of all that is inside.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
_DDP = "module."


def canonical(named: "dict[str, T]") -> "dict[str, T]":
    """The same with the names that the parameters have in the plain model, so that the state of a compiled or wrapped
    model fits a plain one."""
    names = {name: _unwrapped(name) for name in named if isinstance(name, str)}
    # A model may have a part called "module"; DDP's comes before everything.
    while names and all(name.startswith(_DDP) for name in names.values()):
        names = {old: _unwrapped(name.removeprefix(_DDP)) for old, name in names.items()}
    if len(set(names.values())) < len(names) or len(names) < len(named):
        return dict(named)
    return {names[name]: value for name, value in named.items()}


def _unwrapped(name: str) -> str:
    for wrapper in _WRAPPERS:
        # Only whole parts of a name.
        name = f".{name}".replace(f".{wrapper}", ".")[1:]
    return name


def by_parameter(named: "dict[str, torch.Tensor]") -> "dict[torch.Tensor, str]":
    """These names, by parameter."""
    return {parameter: name for name, parameter in canonical(named).items()}
