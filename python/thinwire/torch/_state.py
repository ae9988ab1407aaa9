"""States as torch can save them: plain values, and a tensor for each parameter, with the parameter's shape.

A state has one entry for each rank whose residual it holds, under a key with the number of the rank:

    {"format": 2, "method": "topk", "step": 40, "epoch": 0.0, "ranks": 4,
     "rank 1": {"residual": {"0.weight": tensor, ...}, "momentum": {...}, "selectors": "{}"}}

``state_dict()`` of a rank has its own entry. The other values are the same on all ranks. So
torch.distributed.checkpoint, which stores a key once whoever has it, keeps the residuals of all ranks; and the states
of several ranks in one dictionary are a state too. It reads only what it finds in the state it is given: every
parameter has its tensor, zeros if nothing was kept, and whatever has no fixed names (what selectors remember) is one
text. A parameter with sparse gradients, of which nothing is ever kept, has the text ``"sparse"`` instead of a tensor:
a `Synchronizer` learns of these in its first step only, and torch.distributed.checkpoint puts a text in the place of a
tensor, but needs the same names. Format 1 was flat, of one rank; it is still read.

Inside the package a state is flat, of one rank: the fields of `_FIELDS`, ``residual`` and ``momentum``, and the names
that are ``sparse``.
"""

from __future__ import annotations

import json
import re
from typing import Any, Optional

import torch

from thinwire.errors import BadArgument, BadState
from thinwire.torch._bucket import Layer, fill
from thinwire.torch._names import canonical

FORMAT = 2
_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
KINDS = ("residual", "momentum")
SPARSE = "sparse"
#: What is the same on all ranks, and what is of one.
_COMMON = {"method": str, "step": int, "epoch": (int, float)}
_FIELDS = {**_COMMON, "rank": int, "ranks": int, "selectors": dict}


def empty(method: str, rank: int, ranks: int) -> "dict[str, Any]":
    """The flat state of a run that has not begun."""
    plain = {"method": method, "step": 0, "epoch": 0.0, "rank": rank, "ranks": ranks, "selectors": {}}
    return {**plain, "residual": {}, "momentum": {}}


def to_tensors(saved: "dict[str, Any]", layers: "dict[str, Layer]") -> "dict[str, Any]":
    """What the engine keeps, with a tensor for each parameter."""
    state = dict(saved)
    for kind in KINDS:
        state[kind] = {name: _tensor(values, layers[name]) for name, values in saved[kind].items()}
    return state


def zeros(shape: "tuple[int, ...]") -> torch.Tensor:
    """What is kept of a parameter at the beginning."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _tensor(values: bytes, layer: Layer) -> torch.Tensor:
    if not values:
        return zeros(layer.shape)
    return layer.view(torch.frombuffer(bytearray(values), dtype=torch.float32)).contiguous()


def complete(state: "dict[str, Any]", shapes: "dict[str, tuple[int, ...]]", has_momentum: bool) -> "dict[str, Any]":
    """The flat state with zeros for layers of which nothing was kept: by a method that keeps nothing, or before the
    first step."""
    completed = dict(state)
    for kind in KINDS if has_momentum else KINDS[:1]:
        nothing = {name: zeros(shape) for name, shape in shapes.items() if name not in state[kind]}
        completed[kind] = {**state[kind], **nothing}
    return completed


def for_engine(state: "dict[str, Any]", layers: "dict[str, Layer]") -> "dict[str, Any]":
    """The flat state as the engine takes it."""
    given = {field: state[field] for field in _FIELDS}
    for kind in KINDS:
        known = {name: values for name, values in state[kind].items() if name in layers}
        given[kind] = {name: handed(_flat(values, layers[name])) for name, values in known.items()}
    return given


def _flat(values: torch.Tensor, layer: Layer) -> torch.Tensor:
    flat = torch.empty(values.numel(), dtype=torch.float32, device="cpu")
    fill(flat, [layer], [values])
    return flat


def handed(tensor: torch.Tensor) -> "tuple[Any, ...]":
    """A contiguous tensor as the native part takes it: 32-bit floats in the CPU's memory; or what is on a GPU, with its
    dtype and the stream on which it becomes ready. The native part reads and writes this memory without knowing what it
    is: anything else is an error here."""
    on_cpu = tensor.device.type == "cpu"
    right_dtype = tensor.dtype == torch.float32 if on_cpu else tensor.dtype in _DTYPES
    if not (right_dtype and (on_cpu or tensor.device.type == "cuda") and tensor.is_contiguous()):
        raise BadArgument(
            f"the engine was handed {tensor.dtype} on {tensor.device}{'' if tensor.is_contiguous() else ', with gaps'};"
            " expected contiguous torch.float32 on the CPU, or 16 or 32 bits on a CUDA device"
        )
    place = tensor, tensor.data_ptr(), tensor.numel()
    if on_cpu:
        return place
    return *place, _DTYPES[tensor.dtype], torch.cuda.current_stream(tensor.device).cuda_stream


def key(rank: int) -> str:
    """Where a state has the entry of a rank."""
    return f"rank {rank}"


def pack(flat: "dict[str, Any]", has_momentum: bool = False) -> "dict[str, Any]":
    """The state of one rank as `state_dict()` gives it."""
    own = {**{kind: flat[kind] for kind in KINDS}, "selectors": json.dumps(flat["selectors"])}
    for kind in KINDS if has_momentum else KINDS[:1]:
        own[kind] = {**own[kind], **dict.fromkeys(flat.get(SPARSE, ()), SPARSE)}
    common = {field: flat[field] for field in _COMMON}
    return {"format": FORMAT, **common, "ranks": flat["ranks"], key(flat["rank"]): own}


def unpack(state: Any) -> "list[dict[str, Any]]":
    """The flat states of all ranks that have an entry."""
    if not isinstance(state, dict) or state.get("format") not in (1, FORMAT):
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise BadState(f"the state has the format {found!r}; expected {FORMAT}, as state_dict() makes it")
    if state["format"] == 1:
        flats = [{field: _field(state, field) for field in (*_FIELDS, *KINDS)}]
    else:
        common = {field: _field(state, field) for field in (*_COMMON, "ranks")}
        numbers = {name: re.fullmatch(r"rank (\d+)", str(name)) for name in state}
        entries = {name: int(found[1]) for name, found in numbers.items() if found}
        flats = [{**common, "rank": rank, **_entry(name, state[name])} for name, rank in entries.items()]
    return [_checked(flat) for flat in flats]


def _entry(name: str, entry: Any) -> "dict[str, Any]":
    if not isinstance(entry, dict):
        raise BadState(f"the state is damaged: {name!r} is a {type(entry).__name__}")
    # What is empty does not go through torch.distributed.checkpoint.
    own: "dict[str, Any]" = {kind: entry.get(kind, {}) for kind in KINDS}
    sparse: "set[str]" = set()
    for kind, layers in own.items():
        if isinstance(layers, dict):
            sparse.update(name for name, values in layers.items() if isinstance(values, str) and values == SPARSE)
            own[kind] = {name: values for name, values in layers.items() if name not in sparse}
    own[SPARSE] = sorted(sparse)
    try:
        own["selectors"] = json.loads(_field(entry, "selectors"))
    except (TypeError, ValueError):
        raise BadState(f"the state is damaged: 'selectors' of {name!r} is {entry['selectors']!r:.60}") from None
    return own


def _field(state: "dict[str, Any]", field: str) -> Any:
    if field not in state:
        raise BadState(f"the state has no {field!r}; it is damaged or was made by something else")
    return state[field]


def _checked(flat: "dict[str, Any]") -> "dict[str, Any]":
    for field, kind in {**_FIELDS, "residual": dict, "momentum": dict}.items():
        if not isinstance(flat[field], kind):  # type: ignore[arg-type]
            raise BadState(f"the state is damaged: {field!r} is a {type(flat[field]).__name__}")
    for kind in KINDS:
        for name, values in flat[kind].items():
            if not isinstance(values, torch.Tensor):
                found = type(values).__name__
                raise BadState(f"the state is damaged: {kind} of {name!r} is a {found}; expected a tensor")
            if not values.is_floating_point() or values.device.type == "meta":
                found = f"{values.dtype} on {values.device}"
                raise BadState(f"the state is damaged: {kind} of {name!r} is {found}; expected floats")
            if not torch.isfinite(values).all():
                raise BadState(f"the state is damaged: {kind} of {name!r} holds a NaN or an infinity")
    return flat


def fitted(
    flat: "dict[str, Any]", shapes: "Optional[dict[str, tuple[int, ...]]]", has_momentum: bool, strict: bool = True
) -> "tuple[dict[str, Any], list[str], list[str]]":
    """The flat state for a model with these parameters, and the names that are missing from it and those that it should
    not have; `None`: the parameters are not known yet. Either is an error if `strict`, and zeros or left out if not."""
    began_dense = flat["method"].partition(":")[0] == "dense"
    missing: "set[str]" = set()
    unexpected: "set[str]" = set()
    fitting = dict(flat)
    if not flat["residual"] and flat["step"] > 0 and not began_dense and strict and not shapes:
        raise BadState(
            f"the state is of step {flat['step']} of {flat['method']}, and has no residual. A state that"
            " torch.distributed.checkpoint was to fill must know the parameters: give HookState the model"
        )
    for kind in KINDS:
        layers: "dict[str, torch.Tensor]" = _named(flat[kind], shapes or {})
        if shapes is None or (not layers and (kind == "momentum" or flat["step"] == 0 or began_dense)):
            continue
        # Without what was not kept, nothing is lost.
        absent, unknown = shapes.keys() - layers.keys(), {n for n in layers if n not in shapes and layers[n].any()}
        if strict and (absent or unknown):
            raise BadState(
                f"the state is of another model: {kind} of {_some(sorted(absent))} is missing"
                f" and of {_some(sorted(unknown, key=str))} is not wanted"
            )
        missing, unexpected = missing | absent, unexpected | unknown
        fitting[kind] = {name: values for name, values in layers.items() if name in shapes}
        for name, values in fitting[kind].items():
            found, expected = tuple(values.shape), shapes[name]
            if found != expected:
                raise BadState(f"the state is of another model: {kind} of {name!r} is {found}; expected {expected}")
    kept = any(bool(values.any()) for values in fitting["residual"].values())
    if has_momentum and kept and not fitting["momentum"]:
        raise BadState(f"the state is of {flat['method']}, which keeps no 'momentum'; this method needs it")
    return fitting, sorted(missing), sorted(unexpected, key=str)


def _named(layers: "dict[str, torch.Tensor]", shapes: "dict[str, tuple[int, ...]]") -> "dict[str, torch.Tensor]":
    """The same with the names that the parameters of the model have; a wrapper may have come or gone since."""
    plain = dict(zip(layers, canonical(layers)))
    named = {name if name in shapes else plain[name]: values for name, values in layers.items()}
    return named if len(named) == len(layers) else layers


def _some(names: "list[Any]") -> str:
    if not names:
        return "none"
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
