"""Arrays of any kind as the engine takes them: flat runs of 32-bit floats in the CPU's memory."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thinwire.errors import BadArgument

Floats = NDArray[np.float32]


def handed(array: Floats) -> tuple[Any, int, int]:
    """A contiguous array as the native part takes it: with its address and length. It must outlive the call."""
    return array, array.ctypes.data, array.size


def flat(what: str, values: Any, shape: tuple[int, ...]) -> Floats:
    """The values of an array of this shape in a row; the array's own memory where that has this form already."""
    array = _numpy(what, values)
    if array.shape != shape:
        raise BadArgument(f"{what} has the shape {array.shape}; expected {shape}")
    # bfloat16 from ml_dtypes is of no kind that NumPy knows, but NumPy can convert it.
    if array.dtype.kind != "f" and "float" not in array.dtype.name:
        raise BadArgument(f"{what} is an array of {array.dtype}; expected floats")
    with np.errstate(over="ignore"):
        # "A" for aligned: a view into bytes may begin anywhere.
        floats = np.require(array, np.float32, ["C", "A"]).reshape(-1)
    if array.dtype.itemsize > 4 and np.isinf(floats).any() and not np.isinf(array).any():
        largest = np.abs(array).max()
        raise BadArgument(f"{what} holds {largest:.3g}; expected values that fit into 32-bit floats, up to 3.4e38")
    return floats


def _numpy(what: str, values: Any) -> NDArray[Any]:
    if isinstance(values, (np.ndarray, np.generic)):
        return np.asarray(values)
    if not hasattr(values, "__dlpack__"):
        raise BadArgument(
            f"{what} is a {type(values).__name__}; expected an array of NumPy's, or another that speaks DLPack"
            " (a torch tensor, say)"
        )
    if getattr(values, "requires_grad", False):
        raise BadArgument(f"{what} is a tensor that requires a gradient; expected the values alone: tensor.detach()")
    if str(getattr(values, "dtype", "")).endswith("bfloat16"):
        # DLPack has it, NumPy doesn't.
        values = values.float() if hasattr(values, "float") else values.astype("float32")
    try:
        return np.from_dlpack(values)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        where = getattr(values, "device", None)
        place = "" if where is None else f" (it is on {where})"
        raise BadArgument(f"{what} can't be read{place}: {error}; expected an array in the CPU's memory") from error


def shape_of(what: str, sides: Any) -> tuple[int, ...]:
    """A shape: sides, or one side."""
    try:
        shape = tuple(map(operator.index, sides if hasattr(sides, "__iter__") else (sides,)))
    except TypeError:
        raise BadArgument(f"{what} is {sides!r}; expected whole numbers, such as (100, 10)") from None
    if any(side < 0 for side in shape):
        raise BadArgument(f"{what} is {shape}; expected no negative sides")
    return shape
