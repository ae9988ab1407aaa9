"""Methods: which there are, and how one is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thinwire import _native
from thinwire.errors import BadArgument

#: What a parameter of a method may be given as. Patterns for layer names may be a list.
Value = str | float | int | bool | Sequence[str]


class Parameter(NamedTuple):
    """A parameter of a method: its default, as text, and what it does."""

    default: str
    help: str


@dataclass(frozen=True)
class Method:
    """A method of compression."""

    name: str
    summary: str
    #: The paper it is from, or "-".
    paper: str
    parameters: dict[str, Parameter]


def methods() -> dict[str, Method]:
    """All methods, by name.

    >>> "redsync" in methods()
    True
    >>> methods()["redsync"].parameters["density"].default
    '0.001'
    """
    return {
        name: Method(name, summary, paper, {key: Parameter(*entry) for key, entry in parameters.items()})
        for name, summary, paper, parameters in _native.methods()
    }


def method_text(method: str, density: float | None = None, **parameters: Value) -> str:
    """The method with its parameters as one text, checked, in its shortest form: what has its default is left out.

    >>> method_text("redsync", density=0.01, quantize=True)
    'redsync:density=0.01,quantize=true'
    >>> method_text("ar-topk:leader=var", density=0.05, exclude=["*.bias", "norm*"])
    'ar-topk:density=0.05,leader=var,exclude=*.bias|norm*'
    >>> method_text("fft", density=0.25)  # which has the part to drop instead
    'fft:theta=0.75'
    """
    if not isinstance(method, str):
        raise BadArgument(f"method is {method!r}; expected a text, such as 'redsync' or 'topk:density=0.01'")
    if density is not None:
        parameters.update(_density(method.partition(":")[0].strip(), density))
    words = [f"{name}={_text(name, value)}" for name, value in parameters.items()]
    if words:
        method = method.rstrip().rstrip(":")
        method += ("," if ":" in method else ":") + ",".join(words)
    return str(_native.describe(method)["spec"])


def _density(name: str, density: float) -> dict[str, Value]:
    """The parameter that sets the density. A method that is not known is left to the engine to name."""
    known = methods().get(name)
    if known is None or "density" in known.parameters:
        return {"density": density}
    if "theta" in known.parameters:
        return {"theta": 1.0 - density}
    if "max_density" in known.parameters:
        raise BadArgument(f"density is {density!r}, but {name} chooses it; give min_density and max_density instead")
    raise BadArgument(f"density is {density!r}, but {name} sends everything; leave density out, or take another method")


def _text(name: str, value: Value) -> str:
    if value is None:
        raise BadArgument(f"{name} is None; leave it out for its default")
    if isinstance(value, bool):
        return str(value).lower()
    text = "|".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    if "," in text:
        raise BadArgument(f"{name} is {value!r}; expected no comma: commas separate parameters")
    return text
