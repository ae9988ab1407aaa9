"""States of a compressor: what the engine keeps, with an array for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from thinwire._array import flat, handed
from thinwire.errors import BadArgument, BadState

FORMAT = 1
_KINDS = ("residual", "momentum")
_FIELDS = ("method", "step", "epoch", "rank", "ranks", "selectors", *_KINDS)

Shapes = Mapping[str, "tuple[int, ...]"]


def to_arrays(saved: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """What the engine gave, which has bytes for each layer."""
    state = {"format": FORMAT, **saved}
    for kind in _KINDS:
        state[kind] = {
            # A copy, because what lies over bytes can't be written to.
            name: np.frombuffer(values, np.float32).reshape(shapes[name]).copy()
            for name, values in saved[kind].items()
        }
    return state


def for_engine(state: Any, shapes: Shapes) -> dict[str, Any]:
    """The same as the engine takes it, checked."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        found = f"has the format {state.get('format')!r}" if isinstance(state, Mapping) else f"is {state!r:.60}"
        raise BadState(f"the state {found}; expected format {FORMAT}, as state() makes it")
    missing = [field for field in _FIELDS if field not in state]
    if missing:
        raise BadState(f"the state has no {missing[0]!r}; expected {', '.join(_FIELDS)}, as state() makes them")
    given = {field: state[field] for field in _FIELDS}
    for kind in _KINDS:
        given[kind] = {name: handed(array) for name, array in _layers(kind, state[kind], shapes).items()}
    return given


def _layers(kind: str, layers: Any, shapes: Shapes) -> dict[str, Any]:
    if not isinstance(layers, Mapping):
        raise BadState(f"the state's {kind} is a {type(layers).__name__}; expected arrays by layer")
    # A method that keeps no residual, or no momentum, saves none.
    if layers and layers.keys() != shapes.keys():
        raise BadState(f"the state has the {kind} of {sorted(layers)}; expected that of {sorted(shapes)}")
    try:
        arrays = {name: flat(f"the state's {kind} of {name!r}", layers[name], shapes[name]) for name in layers}
    except BadArgument as error:
        raise BadState(str(error)) from None
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise BadState(f"the state's {kind} of {name!r} holds a NaN or an infinity; expected finite values")
    return arrays
