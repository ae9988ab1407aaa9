"""Arrays to frames and back, without other ranks and without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from thinwire import _native, _state
from thinwire._array import Floats, flat, handed, shape_of
from thinwire._method import Value, method_text
from thinwire.errors import BadArgument

#: What the layer is called where there is only one, without a name.
ONLY = "gradient"

Shape = int | Iterable[int]


@dataclass(frozen=True)
class Frame:
    """A compressed gradient."""

    #: What would travel.
    data: bytes
    #: Coordinates sent from compressed layers: the achieved k.
    kept: int
    #: The share of the accumulated gradient's energy that was sent.
    gain: float


class Compressor:
    """Compresses the gradients of one array, or of some named ones, step after step, and keeps what was not sent.

    ``layers`` is a shape, or shapes by name; gradients are given and come back in the same form. Arrays are NumPy's, or
    of anything that speaks DLPack and is in the memory of the CPU (torch, JAX, ...), of floats of any width; the engine
    works with 32 bits. ``threads`` is how many of them the arithmetic may use.

    >>> import numpy as np
    >>> compressor = Compressor(1000, "topk", density=0.01)
    >>> gradient = np.arange(-500, 500, dtype=np.float32)
    >>> frame = compressor.compress(gradient)
    >>> frame.kept, len(frame.data)  # instead of 4000 bytes
    (10, 100)
    >>> compressor.decompress(frame)[:4]
    array([-500., -499., -498., -497.], dtype=float32)
    >>> float(compressor.residual()[0]), float(compressor.residual()[100])
    (0.0, -400.0)

    The mean over ranks is made from their frames, and layers may have names:

    >>> ranks = [Compressor({"weight": (10, 100), "bias": (10,)}, "topk", density=0.5) for _ in range(2)]
    >>> gradients = [{"weight": np.full((10, 100), n), "bias": np.full(10, 2.0 * n)} for n in (1.0, 3.0)]
    >>> frames = [rank.compress(gradient) for rank, gradient in zip(ranks, gradients)]
    >>> ranks[0].decompress(*frames)["bias"][:3]
    array([4., 4., 4.], dtype=float32)
    """

    def __init__(
        self,
        layers: Shape | Mapping[str, Shape],
        method: str = "redsync",
        density: float | None = None,
        *,
        threads: int = 1,
        **parameters: Value,
    ) -> None:
        self._named = isinstance(layers, Mapping)
        shapes = layers if isinstance(layers, Mapping) else {ONLY: layers}
        for name in shapes:
            if not isinstance(name, str):
                raise BadArgument(f"a layer is named {name!r}; expected a text")
        if not isinstance(threads, int) or threads < 1:
            raise BadArgument(f"threads is {threads!r}; expected a whole number of 1 or more")
        self._shapes = {name: shape_of(f"the shape of {name!r}", sides) for name, sides in shapes.items()}
        self._sizes = {name: math.prod(shape) for name, shape in self._shapes.items()}
        #: The method with its parameters, in the shortest form.
        self.method = method_text(method, density, **parameters)
        self._native = _native.Compressor(self.method, list(self._shapes.items()), threads)

    def compress(self, gradient: Any, weights: Any = None, *, epoch: float | None = None) -> Frame:
        """One step: the gradient is added to what was kept, and the most important part of that becomes a frame.

        ``weights`` are needed by methods that look at them (``iwp``). ``epoch`` tells methods that warm up how many
        epochs are done; without it the warm-up is over. After an exception everything is as it was before.
        """
        flat_gradient = self._flat("gradient", gradient)
        flat_weights = None if weights is None else self._flat("weights", weights)
        given = None if flat_weights is None else handed(flat_weights)
        return Frame(*self._native.compress(handed(flat_gradient), given, epoch))

    def decompress(self, *frames: Frame | bytes) -> Any:
        """The mean of frames of one step, one from each rank. The same order on every rank gives the same bits."""
        if not frames:
            raise BadArgument("decompress() was given no frame; expected at least one")
        mean = np.zeros(sum(self._sizes.values()), np.float32)
        self._native.sum([_bytes(number, frame) for number, frame in enumerate(frames)], 1 / len(frames), handed(mean))
        layers, start = {}, 0
        for name, shape in self._shapes.items():
            layers[name] = mean[start : start + self._sizes[name]].reshape(shape)
            start += self._sizes[name]
        return self._as_given(layers)

    def residual(self) -> Any:
        """What was not sent yet; zeros with a method that keeps nothing."""
        kept = _state.to_arrays(self._native.save(), self._shapes)["residual"]
        return self._as_given(
            {name: kept.get(name, np.zeros(shape, np.float32)) for name, shape in self._shapes.items()}
        )

    def state(self) -> dict[str, Any]:
        """Everything a run needs to go on with the same bits: plain values, and arrays by layer.

        >>> compressor = Compressor(100, "topk", density=0.01)
        >>> frame = compressor.compress(np.arange(100.0))
        >>> copy = Compressor(100, "topk", density=0.01)
        >>> copy.restore(compressor.state())
        >>> copy.compress(np.ones(100)).data == compressor.compress(np.ones(100)).data
        True
        """
        return _state.to_arrays(self._native.save(), self._shapes)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what :meth:`state` gave, also of another method. After an exception nothing has changed."""
        self._native.restore(_state.for_engine(state, self._shapes))

    def _flat(self, what: str, arrays: Any) -> Floats:
        if not self._named:
            return flat(what, arrays, self._shapes[ONLY])
        if not isinstance(arrays, Mapping):
            raise BadArgument(f"{what} is a {type(arrays).__name__}; expected a dictionary of arrays, by layer")
        if arrays.keys() != self._shapes.keys():
            raise BadArgument(f"{what} has the layers {sorted(arrays)}; expected {sorted(self._shapes)}")
        parts = [flat(f"{what} {name!r}", arrays[name], shape) for name, shape in self._shapes.items()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.float32)])

    def _as_given(self, layers: dict[str, Floats]) -> Any:
        return layers if self._named else layers[ONLY]


def _bytes(number: int, frame: Any) -> bytes:
    if isinstance(frame, Frame):
        return frame.data
    if not isinstance(frame, (bytes, bytearray, memoryview)):
        raise BadArgument(f"frame {number} is a {type(frame).__name__}; expected a Frame or its bytes")
    return bytes(frame)
