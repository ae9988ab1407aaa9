"""States as torch can save them, and how they fit into another number of ranks."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import torch

from thinwire.errors import BadState

FORMAT = 1
_KINDS = ("residual", "momentum")
_FIELDS = ("method", "step", "epoch", "rank", "ranks", "selectors", *_KINDS)


def to_tensors(saved: "dict[str, Any]", shapes: "dict[str, Sequence[int]]") -> "dict[str, Any]":
    """What the engine keeps, with a tensor for each parameter."""
    state = dict(saved, format=FORMAT)
    for kind in _KINDS:
        state[kind] = {name: _tensor(values, shapes[name]) for name, values in saved[kind].items()}
    return state


def _tensor(values: bytes, shape: "Sequence[int]") -> torch.Tensor:
    if not values:
        return torch.zeros(tuple(shape))
    return torch.frombuffer(bytearray(values), dtype=torch.float32).reshape(tuple(shape))


def for_engine(state: "dict[str, Any]") -> "dict[str, Any]":
    """The same as the engine takes it."""
    given = {field: state[field] for field in _FIELDS}
    for kind in _KINDS:
        given[kind] = {name: handed(flat(values)) for name, values in state[kind].items()}
    return given


def flat(values: torch.Tensor) -> torch.Tensor:
    return values.detach().to("cpu", torch.float32).contiguous().reshape(-1)


def handed(tensor: torch.Tensor) -> "tuple[torch.Tensor, int, int]":
    """A contiguous tensor of 32-bit floats as the native part takes it."""
    return tensor, tensor.data_ptr(), tensor.numel()


def check(state: Any, shapes: "dict[str, Sequence[int]]") -> None:
    """Whether this is a state of a model with these parameters."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise BadState(f"the state has the format {found!r}; expected {FORMAT}, as state_dict() makes it")
    missing = [field for field in _FIELDS if field not in state]
    if missing:
        raise BadState(f"the state has no {missing[0]!r}; it is damaged or was made by something else")
    for kind in _KINDS:
        layers = state[kind]
        if not layers:
            continue
        absent, unknown = sorted(shapes.keys() - layers.keys()), sorted(layers.keys() - shapes.keys())
        if absent or unknown:
            raise BadState(
                f"the state is of another model: {kind} of {_some(absent)} is missing"
                f" and of {_some(unknown)} is not wanted"
            )
        for name, values in layers.items():
            if tuple(values.shape) != tuple(shapes[name]):
                found, expected = tuple(values.shape), tuple(shapes[name])
                raise BadState(f"the state is of another model: {kind} of {name!r} is {found}; expected {expected}")
            if not torch.isfinite(values).all():
                raise BadState(f"the state is damaged: {kind} of {name!r} holds a NaN or an infinity")


def _some(names: "list[str]") -> str:
    if not names:
        return "none"
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def share(states: "Sequence[dict[str, Any]]", rank: int, ranks: int) -> "dict[str, Any]":
    """The state for one of `ranks` ranks, from those of all ranks of an earlier run.

    With as many ranks as before everyone gets its own, bit for bit. Otherwise old rank `r` goes to new rank
    `r % ranks`, and sums are kept: with fewer ranks a rank gets the sum of several, with more some begin with nothing.
    """
    ordered = sorted(states, key=lambda state: state["rank"])
    numbers = [state["rank"] for state in ordered]
    before = ordered[0]["ranks"]
    if numbers != list(range(before)):
        raise BadState(f"the states are those of ranks {numbers}; expected one of each of the {before} ranks there were")
    if before == ranks:
        return ordered[rank]
    mine = [state for state in ordered if state["rank"] % ranks == rank]
    joined = dict(mine[0] if mine else ordered[0], rank=rank, ranks=ranks)
    for kind in _KINDS:
        joined[kind] = {name: _sum(state[kind][name] for state in mine) for name in ordered[0][kind]} if mine else {
            name: torch.zeros_like(values) for name, values in ordered[0][kind].items()
        }
    return joined


def _sum(tensors: "Iterable[torch.Tensor]") -> torch.Tensor:
    total, *rest = tensors
    total = total.clone()
    for tensor in rest:
        total += tensor
    return total
