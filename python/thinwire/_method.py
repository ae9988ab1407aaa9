"""Methods: which there are, and how one is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from thinwire import _native

Value = Union[str, float, int, bool]


@dataclass(frozen=True)
class Method:
    """A method of compression."""

    name: str
    summary: str
    paper: str
    #: Of each parameter the default, as text, and what it does.
    parameters: "dict[str, tuple[str, str]]"


def methods() -> "dict[str, Method]":
    """All methods, by name.

    >>> "redsync" in methods()
    True
    >>> methods()["redsync"].parameters["quantize"][0]
    'false'
    """
    return {name: Method(name, summary, paper, parameters) for name, summary, paper, parameters in _native.methods()}


def method_text(method: str, density: Optional[float] = None, **parameters: Value) -> str:
    """The method with its parameters as one text, checked, in its shortest form.

    >>> method_text("redsync", density=0.01, quantize=True)
    'redsync:density=0.01,quantize=true'
    >>> method_text("ar-topk:leader=var", density=0.05)
    'ar-topk:density=0.05,leader=var'
    """
    if density is not None:
        parameters["density"] = density
    words = [f"{name}={_text(value)}" for name, value in parameters.items()]
    if words:
        method += ("," if ":" in method else ":") + ",".join(words)
    return _native.describe(method)[0]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
