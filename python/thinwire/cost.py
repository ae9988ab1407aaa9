"""What an exchange of gradients costs on a network, before it is tried.

A message costs its hops times the latency, and its bytes over the bandwidth; each collective has its hops and bytes,
by the formulas of the papers. They are estimates: nothing is measured. All times are seconds on the wire, all sizes are
of one rank's gradient.

>>> from thinwire import cost
>>> resnet50 = {"ranks": 8, "elements": 25_557_032}
>>> cost.best("1gbit,1ms", **resnet50, density=0.01)
Choice(collective='ring', seconds=0.0558...)
>>> round(cost.dense("1gbit,1ms", **resnet50)["ring"], 3)
1.445
>>> cost.pays("1gbit,1ms", **resnet50, density=0.01, compress=0.03, decompress=0.01)
True
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import NamedTuple

from thinwire import _native
from thinwire.errors import BadArgument

__all__ = ["Choice", "Network", "best", "compressed", "dense", "pays"]


@dataclass(frozen=True, init=False)
class Network:
    """A network: as text, or as Gbit/s and milliseconds one way. The functions here take the text as well.

    >>> Network("1gbit,1ms")
    Network(latency=0.001, seconds_per_byte=8e-09)
    >>> Network("1gbit,1ms") == Network(gbit=1, ms=1)
    True
    """

    #: Seconds until a message of no bytes has arrived.
    latency: float
    #: Seconds that each byte adds.
    seconds_per_byte: float

    def __init__(self, gbit: str | float, ms: float = 0.0) -> None:
        if isinstance(gbit, str):
            if ms:
                raise BadArgument(
                    f"network is {gbit!r} and ms is {ms!r}; expected the latency in the text: '1gbit,1ms'"
                )
            link = _native.network_from_text(gbit)
        else:
            link = _native.network_from_numbers(_number("gbit", gbit), _number("ms", ms))
        object.__setattr__(self, "latency", link[0])
        object.__setattr__(self, "seconds_per_byte", link[1])


class Choice(NamedTuple):
    """A collective, and the seconds it takes."""

    collective: str
    seconds: float


def dense(network: Network | str, *, ranks: int, elements: float, element_bytes: float = 4) -> dict[str, float]:
    """Seconds to sum whole gradients, by collective.

    >>> {name: round(seconds, 2) for name, seconds in dense("10gbit,1ms", ranks=8, elements=25e6).items()}
    {'ring': 0.15, 'tree': 0.49, 'rabenseifner': 0.15, 'parameter-server': 1.12}
    """
    whole = _size("elements", elements) * _size("element_bytes", element_bytes)
    return dict(_native.dense_seconds(_link(network), _ranks(ranks), whole))


def compressed(
    network: Network | str,
    *,
    ranks: int,
    elements: float,
    density: float,
    value_bytes: float = 4,
    index_bytes: float = 4,
) -> dict[str, float]:
    """Seconds to exchange the part ``density`` of gradients, by collective.

    ``ring`` and ``tree`` sum the values at coordinates that all ranks have agreed on, ``all-gather`` collects
    everybody's own. thinwire's codec takes about ten bits for an index at a density of 1 %; the papers count four
    bytes.

    >>> times = compressed("1gbit,50ms", ranks=8, elements=25_557_032, density=0.01)
    >>> {name: round(seconds, 3) for name, seconds in times.items()}
    {'ring': 0.889, 'tree': 0.524, 'all-gather': 0.264}
    """
    message = _message(elements, density, value_bytes, index_bytes)
    return dict(_native.compressed_seconds(_link(network), _ranks(ranks), *message))


def best(
    network: Network | str,
    *,
    ranks: int,
    elements: float,
    density: float,
    value_bytes: float = 4,
    index_bytes: float = 4,
) -> Choice:
    """The fastest of :func:`compressed`; on a tie the first.

    >>> best("10gbit,1ms", ranks=8, elements=25_557_032, density=0.01).collective
    'all-gather'
    """
    message = _message(elements, density, value_bytes, index_bytes)
    return Choice(*_native.best_collective(_link(network), _ranks(ranks), *message))


def pays(
    network: Network | str,
    *,
    ranks: int,
    elements: float,
    density: float,
    compress: float = 0.0,
    decompress: float = 0.0,
) -> bool:
    """Whether compressing, exchanging by the best collective and decompressing is faster than the faster of a dense
    ring and a dense tree. ``compress`` and ``decompress`` are the seconds they take on your machine.

    >>> pays("100mbit", ranks=4, elements=1e6, density=0.01, compress=0.002)
    True
    >>> pays("100gbit", ranks=4, elements=1e6, density=0.01, compress=0.002)
    False
    """
    whole = dense(network, ranks=ranks, elements=elements)
    part = best(network, ranks=ranks, elements=elements, density=density)
    ends = _size("compress", compress), _size("decompress", decompress)
    return _native.pays(part.seconds, *ends, min(whole["ring"], whole["tree"]))


def _link(network: Network | str) -> tuple[float, float]:
    if isinstance(network, str):
        network = Network(network)
    if not isinstance(network, Network):
        raise BadArgument(f"network is {network!r}; expected a Network or a text such as '1gbit,1ms'")
    return network.latency, network.seconds_per_byte


def _ranks(ranks: int) -> int:
    try:
        count = operator.index(ranks)
    except TypeError:
        count = 0
    if not 1 <= count < 2**32:
        raise BadArgument(f"ranks is {ranks!r}; expected a whole number of 1 or more")
    return count


def _message(elements: float, density: float, value_bytes: float, index_bytes: float) -> tuple[float, float]:
    if not 0 < _number("density", density) <= 1:
        raise BadArgument(f"density is {density!r}; expected a number above 0 and up to 1")
    kept = _size("elements", elements) * density
    return kept * _size("value_bytes", value_bytes), kept * _size("index_bytes", index_bytes)


def _size(name: str, value: float) -> float:
    if not (_number(name, value) >= 0 and math.isfinite(value)):
        raise BadArgument(f"{name} is {value!r}; expected a finite number of 0 or more")
    return float(value)


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadArgument(f"{name} is {value!r}; expected a number") from None
