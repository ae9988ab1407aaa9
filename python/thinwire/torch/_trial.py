"""Whether the default method pays on this link: a few steps each way, timed.

A probe of the link with messages of its own misjudges a busy machine, and says nothing of the arithmetic. So the trial
times what is to be chosen between: the exchange of whole steps, quantised and by DDP's own all-reduce, in turns. A way
takes the time of its fastest step, which other load delays least, on its slowest rank. Every rank gathers the same
times and so decides the same.

The residual waits while dense steps are timed. If dense is faster, one more step sends gradient and residual in full,
so that nothing is lost, and DDP's own all-reduce carries everything from then on.
"""

from __future__ import annotations

import struct
from typing import Any

from thinwire.torch._group import TorchGroup

#: Steps of each way.
STEPS = 3
QUANTIZED, DENSE = "quantized", "dense"


class Trial:
    """One trial. ``way`` is how the next step goes."""

    def __init__(self) -> None:
        #: Seconds of the exchange, by way.
        self._seconds: "dict[str, list[float]]" = {QUANTIZED: [], DENSE: []}
        self.way = QUANTIZED
        #: Whether dense was chosen and the residual is still to be sent.
        self.flushes = False
        self.over = False

    def record(self, seconds: float) -> None:
        """Takes the time of a step that went the present way; the next one goes the other."""
        self._seconds[self.way].append(seconds)
        self.way = DENSE if self.way == QUANTIZED else QUANTIZED

    @property
    def complete(self) -> bool:
        """Whether both ways have had their steps."""
        return not self.over and all(len(seconds) >= STEPS for seconds in self._seconds.values())

    def decide(self, group: TorchGroup, step: int) -> "dict[str, Any]":
        """The decision, for a report. All ranks call it together."""
        mine = struct.pack("<2d", *(min(self._seconds[way]) for way in (QUANTIZED, DENSE)))
        slowest = [max(times) for times in zip(*(struct.unpack("<2d", theirs) for theirs in group.gather(mine)))]
        quantized, dense = slowest
        self.over, self.flushes = True, dense <= quantized
        self.way = DENSE if self.flushes else QUANTIZED
        times = f"an exchange takes {1e3 * dense:.3g} ms dense and {1e3 * quantized:.3g} ms quantised"
        outcome = "sends dense: quantising does not pay on this link" if self.flushes else "quantises"
        return {"step": step, "way": self.way, "dense": dense, "quantized": quantized, "text": f"{outcome}; {times}"}

