"""States as torch can save them: plain values, and a tensor for each parameter, with the parameter's shape."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence

import torch

from thinwire.errors import BadState
from thinwire.torch._bucket import Layer, fill
from thinwire.torch._group import TorchGroup

FORMAT = 1
_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_KINDS = ("residual", "momentum")
_FIELDS = {"method": str, "step": int, "epoch": (int, float), "rank": int, "ranks": int, "selectors": dict}


def empty(method: str, group: Optional[TorchGroup]) -> "dict[str, Any]":
    """The state of a run that has not begun."""
    rank, ranks = (group.rank, group.size) if group is not None else (0, 0)
    plain = {"method": method, "step": 0, "epoch": 0.0, "rank": rank, "ranks": ranks, "selectors": {}}
    return {"format": FORMAT, **plain, "residual": {}, "momentum": {}}


def to_tensors(saved: "dict[str, Any]", layers: "dict[str, Layer]") -> "dict[str, Any]":
    """What the engine keeps, with a tensor for each parameter."""
    state = dict(saved, format=FORMAT)
    for kind in _KINDS:
        state[kind] = {name: _tensor(values, layers[name]) for name, values in saved[kind].items()}
    return state


def _tensor(values: bytes, layer: Layer) -> torch.Tensor:
    if not values:
        return torch.zeros(layer.shape)
    return layer.view(torch.frombuffer(bytearray(values), dtype=torch.float32)).contiguous()


def complete(state: "dict[str, Any]", layers: "dict[str, Layer]", has_momentum: bool) -> "dict[str, Any]":
    """The state with zeros for layers of which nothing was kept: by a method that keeps nothing, or before the first
    step."""
    completed = dict(state)
    for kind in _KINDS if has_momentum else _KINDS[:1]:
        nothing = {name: torch.zeros(layer.shape) for name, layer in layers.items() if name not in state[kind]}
        completed[kind] = {**state[kind], **nothing}
    return completed


def for_engine(state: "dict[str, Any]", layers: "dict[str, Layer]") -> "dict[str, Any]":
    """The same as the engine takes it."""
    given = {field: state[field] for field in _FIELDS}
    for kind in _KINDS:
        known = {name: values for name, values in state[kind].items() if name in layers}
        given[kind] = {name: handed(_flat(values, layers[name])) for name, values in known.items()}
    return given


def _flat(values: torch.Tensor, layer: Layer) -> torch.Tensor:
    flat = torch.empty(values.numel())
    fill(flat, [layer], [values])
    return flat


def handed(tensor: torch.Tensor) -> "tuple[Any, ...]":
    """A contiguous tensor as the native part takes it: 32-bit floats in the CPU's memory; or what is on a GPU, with its
    dtype and the stream on which it becomes ready."""
    place = tensor, tensor.data_ptr(), tensor.numel()
    if tensor.device.type == "cpu":
        return place
    return *place, _DTYPES[tensor.dtype], torch.cuda.current_stream(tensor.device).cuda_stream


def check(state: Any, shapes: "Optional[dict[str, tuple[int, ...]]]", has_momentum: bool) -> None:
    """Fails unless this is a state of a model with these parameters; `None`: they are not known yet."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise BadState(f"the state has the format {found!r}; expected {FORMAT}, as state_dict() makes it")
    for field, kind in {**_FIELDS, "residual": dict, "momentum": dict}.items():
        if field not in state:
            raise BadState(f"the state has no {field!r}; it is damaged or was made by something else")
        if not isinstance(state[field], kind):  # type: ignore[arg-type]
            raise BadState(f"the state is damaged: {field!r} is a {type(state[field]).__name__}")
    for name in _KINDS:
        if state[name]:
            _check_layers(name, state[name], shapes)
    if has_momentum and state["residual"] and not state["momentum"]:
        raise BadState(f"the state is of {state['method']}, which keeps no 'momentum'; this method needs it")


def _check_layers(kind: str, layers: "dict[str, Any]", shapes: "Optional[dict[str, tuple[int, ...]]]") -> None:
    if shapes is not None:
        absent, unknown = sorted(shapes.keys() - layers.keys()), sorted(layers.keys() - shapes.keys(), key=str)
        if absent or unknown:
            raise BadState(
                f"the state is of another model: {kind} of {_some(absent)} is missing"
                f" and of {_some(unknown)} is not wanted"
            )
    for name, values in layers.items():
        if not isinstance(values, torch.Tensor):
            raise BadState(f"the state is damaged: {kind} of {name!r} is a {type(values).__name__}; expected a tensor")
        if shapes is not None and tuple(values.shape) != shapes[name]:
            found, expected = tuple(values.shape), shapes[name]
            raise BadState(f"the state is of another model: {kind} of {name!r} is {found}; expected {expected}")
        if not torch.isfinite(values).all():
            raise BadState(f"the state is damaged: {kind} of {name!r} holds a NaN or an infinity")


def _some(names: "list[Any]") -> str:
    if not names:
        return "none"
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def own(state: Any, rank: int, ranks: int) -> "dict[str, Any]":
    """The part of this rank: of its own state, or of a list of those of all ranks there were."""
    if isinstance(state, (list, tuple)):
        return share(state, rank, ranks)
    if state["ranks"] != 0 and (state["rank"], state["ranks"]) != (rank, ranks):
        raise BadState(
            f"the state is of rank {state['rank']} of {state['ranks']}, this is rank {rank} of {ranks}."
            " Every rank loads its own; or load a list of the states of all ranks, such as"
            " state_dict(all_ranks=True) gives, which fits into any number of ranks"
        )
    return dict(state)


def share(states: "Sequence[dict[str, Any]]", rank: int, ranks: int) -> "dict[str, Any]":
    """The state for one of `ranks` ranks, from those of all ranks of an earlier run.

    With as many ranks as before everyone gets its own, bit for bit. Otherwise old rank `r` goes to new rank
    `r % ranks`, and sums are kept: with fewer ranks a rank gets the sum of several, with more some begin with nothing.
    """
    ordered = sorted(states, key=lambda state: state["rank"])
    numbers = [state["rank"] for state in ordered]
    before = ordered[0]["ranks"] if ordered else 0
    if not ordered or numbers != list(range(before)):
        expected = f"one of each of the {before} ranks of the run"
        raise BadState(f"the states are those of ranks {numbers}; expected {expected}")
    for state in ordered:
        for field in ("method", "step", "ranks"):
            if state[field] != ordered[0][field]:
                found, expected = state[field], ordered[0][field]
                raise BadState(f"the states are of several runs: {field!r} is {found!r} and {expected!r}")
    if before == ranks:
        return dict(ordered[rank])
    mine = [state for state in ordered if state["rank"] % ranks == rank]
    joined = dict(mine[0] if mine else ordered[0], rank=rank, ranks=ranks)
    for kind in _KINDS:
        names = ordered[0][kind]
        joined[kind] = {name: _sum(names[name], [state[kind][name] for state in mine]) for name in names}
    return joined


def _sum(like: torch.Tensor, tensors: "Iterable[torch.Tensor]") -> torch.Tensor:
    total = torch.zeros_like(like)
    for tensor in tensors:
        total += tensor
    return total
