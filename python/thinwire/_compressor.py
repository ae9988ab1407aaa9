"""Arrays to frames and back, without other ranks and without torch."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Optional

from thinwire import _native
from thinwire._method import method_text
from thinwire.errors import BadArgument


class Frame(NamedTuple):
    """A compressed gradient."""

    #: What would travel.
    data: bytes
    #: Coordinates sent from compressed layers: the achieved k.
    kept: int
    #: The share of the accumulated gradient's energy that was sent.
    gain: float


class Compressor:
    """Compresses the gradients of one array, or of some named ones, step after step, and keeps what was not sent.

    ``layers`` is a shape, or shapes by name; gradients are given in the same form. Arrays are NumPy's, or of anything
    that speaks DLPack and is in the memory of the CPU (torch, JAX, CuPy's hosts, ...).

    >>> import numpy as np
    >>> compressor = Compressor((1000,), "topk", density=0.01)
    >>> gradient = np.arange(-500, 500, dtype=np.float32)
    >>> frame = compressor.compress(gradient)
    >>> frame.kept, len(frame.data) < 100
    (10, True)
    >>> compressor.decompress(frame.data)[:4]
    array([-500., -499., -498., -497.], dtype=float32)
    >>> float(compressor.residual()[0]), float(compressor.residual()[500])
    (0.0, 0.0)
    """

    def __init__(
        self,
        layers: Any,
        method: str = "redsync",
        density: Optional[float] = None,
        *,
        threads: int = 1,
        **parameters: Any,
    ) -> None:
        self._single = not isinstance(layers, dict)
        shapes = {"gradient": layers} if self._single else layers
        self._shapes = {name: _shape(name, shape) for name, shape in shapes.items()}
        self.method = method_text(method, density, **parameters)
        self._native = _native.Compressor(self.method, list(self._shapes.items()), threads)

    def compress(self, gradient: Any, weights: Any = None) -> Frame:
        """One step: the gradient is added to what was kept, and the most important part of that becomes a frame.

        ``weights`` are needed by methods that look at them (``iwp``).
        """
        flat = self._flat("gradient", gradient)
        flat_weights = None if weights is None else self._flat("weights", weights)
        given = None if flat_weights is None else handed(flat_weights)
        return Frame(*self._native.compress(handed(flat), given))

    def decompress(self, *frames: bytes) -> Any:
        """The mean of frames, one from each rank."""
        import numpy as np

        if not frames:
            raise BadArgument("decompress() was given no frame; expected at least one")
        flat = np.zeros(sum(map(_size, self._shapes.values())), np.float32)
        self._native.sum([bytes(frame) for frame in frames], 1 / len(frames), handed(flat))
        return self._shaped(flat)

    def residual(self) -> Any:
        """What was not sent yet."""
        import numpy as np

        saved = self._native.save()["residual"]
        nothing = {name: np.zeros(shape, np.float32) for name, shape in self._shapes.items()}
        found = {name: np.frombuffer(values, np.float32).reshape(self._shapes[name]) for name, values in saved.items()}
        layers = {**nothing, **found}
        return layers["gradient"] if self._single else layers

    def _flat(self, what: str, arrays: Any) -> Any:
        import numpy as np

        named = {"gradient": arrays} if self._single else arrays
        if set(named) != set(self._shapes):
            raise BadArgument(f"{what}: got the layers {sorted(named)}; expected {sorted(self._shapes)}")
        flat = [_array(f"{what} {name!r}", named[name], shape) for name, shape in self._shapes.items()]
        return flat[0] if len(flat) == 1 else np.concatenate(flat)

    def _shaped(self, flat: Any) -> Any:
        layers, start = {}, 0
        for name, shape in self._shapes.items():
            layers[name] = flat[start : start + _size(shape)].reshape(shape)
            start += _size(shape)
        return layers["gradient"] if self._single else layers


def handed(array: Any) -> "tuple[Any, int, int]":
    """A contiguous array of 32-bit floats as the native part takes it."""
    return array, array.ctypes.data, array.size


def _array(what: str, values: Any, shape: "tuple[int, ...]") -> Any:
    import numpy as np

    array = values if isinstance(values, np.ndarray) else _from_dlpack(what, values)
    if array.shape != shape:
        raise BadArgument(f"{what} has the shape {array.shape}; expected {shape}")
    if array.dtype.kind != "f":
        raise BadArgument(f"{what} is an array of {array.dtype}; expected floats")
    return np.ascontiguousarray(array, np.float32).reshape(-1)


def _from_dlpack(what: str, values: Any) -> Any:
    import numpy as np

    if not hasattr(values, "__dlpack__"):
        raise BadArgument(f"{what} is a {type(values).__name__}; expected an array that speaks DLPack, such as NumPy's")
    try:
        return np.from_dlpack(values)
    except (BufferError, RuntimeError, TypeError) as error:
        raise BadArgument(f"{what} can't be read: {error}; expected an array in the CPU's memory") from error


def _shape(name: str, shape: "Iterable[int]") -> "tuple[int, ...]":
    try:
        sides = tuple(int(side) for side in shape)
    except TypeError as error:
        raise BadArgument(f"the shape of {name!r} is {shape!r}; expected sides, such as (100, 10)") from error
    if any(side < 0 for side in sides):
        raise BadArgument(f"the shape of {name!r} is {sides}; expected no negative sides")
    return sides


def _size(shape: "tuple[int, ...]") -> int:
    size = 1
    for side in shape:
        size *= side
    return size
