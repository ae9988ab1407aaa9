"""What compression has come to so far."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Sequence

from thinwire.torch._uncompressed import Uncompressed

_TIMES = ("select", "encode", "exchange", "settle", "check", "adapt")
_log = logging.getLogger("thinwire")

#: A step, as the native part reports it, in which nothing was compressed.
NO_STEP: "dict[str, Any]" = {
    **dict.fromkeys(("elements", "dense", "asked", "kept", "sent", "received"), 0),
    **dict.fromkeys(("energy", "energy_sent", *(f"{stage}_seconds" for stage in _TIMES)), 0.0),
    "decisions": [],
    "density": 1.0,
}


@dataclass
class Report:
    """The figures of all steps so far on this rank. Printed it is a short text; ``as_dict()`` is for machines."""

    method: str = ""
    ranks: int = 1
    steps: int = 0
    #: Steps that all ranks skipped because of an infinity or NaN.
    skipped: int = 0
    #: Bytes this rank sent and received.
    sent: int = 0
    received: int = 0
    #: Bytes that a dense ring all-reduce of 32-bit floats would have sent.
    dense: int = 0
    #: Elements of the gradient, and how many of them are in layers that are sent dense.
    elements: int = 0
    dense_elements: int = 0
    #: Parameters whose gradients can't be compressed, with the reason. They are among the elements sent dense.
    uncompressed: "dict[str, str]" = field(default_factory=dict)
    #: Of the last step: coordinates asked for and sent from compressed layers, and the share of the energy sent.
    asked: int = 0
    kept: int = 0
    gain: float = 1.0
    #: Seconds a step in each stage, the mean over all steps.
    seconds: "dict[str, float]" = field(default_factory=dict)
    #: What was decided, with what was measured, and all of it in a sentence (``text``): by ``auto`` (on rank 0, which
    #: decides for all), or by the trial of the default method.
    decisions: "list[dict[str, Any]]" = field(default_factory=list)
    #: Bytes held beyond the model: what was not sent (with momentum correction twice), and work space.
    residual_bytes: int = 0
    workspace_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Dense bytes over bytes sent; 1 where nothing travels."""
        return self.dense / self.sent if self.sent else 1.0

    def as_dict(self) -> "dict[str, Any]":
        return {**asdict(self), "ratio": self.ratio}

    def add(
        self,
        step: "dict[str, Any]",
        residual_bytes: int,
        workspace_bytes: int,
        uncompressed: "Sequence[Uncompressed]" = (),
    ) -> None:
        """Adds a step, as the native part reports it, and what was exchanged beside it."""
        self.steps += 1
        self.residual_bytes, self.workspace_bytes = residual_bytes, workspace_bytes
        self.sent += step["sent"]
        self.received += step["received"]
        self.elements, self.dense_elements = step["elements"], step["dense"]
        self.dense += 2 * (self.ranks - 1) * 4 * self.elements // self.ranks
        for entry in uncompressed:
            self._add_uncompressed(entry)
        self.asked, self.kept = step["asked"], step["kept"]
        self.gain = step["energy_sent"] / step["energy"] if step["energy"] else 1.0
        for decision in map(json.loads, step["decisions"]):
            self.decide(decision)
        for stage in _TIMES:
            mean = self.seconds.get(stage, 0.0)
            self.seconds[stage] = mean + (step[f"{stage}_seconds"] - mean) / self.steps

    def decide(self, decision: "dict[str, Any]") -> None:
        """Adds a decision."""
        self.decisions.append(decision)
        _log.info("step %d: %s", decision["step"], decision["text"])

    def _add_uncompressed(self, entry: Uncompressed) -> None:
        size, ranks = entry.bytes, self.ranks
        # torch's all-reduce is a ring; of sparse tensors it gathers the parts of all.
        moved = size * (ranks - 1) if entry.reason == "sparse" else 2 * size * (ranks - 1) // ranks
        self.sent += moved
        self.received += moved
        self.dense += 2 * (ranks - 1) * 4 * entry.gradient.numel() // ranks
        self.elements += entry.gradient.numel()
        self.dense_elements += entry.gradient.numel()
        self.uncompressed.update(dict.fromkeys(entry.names, entry.reason))

    def __str__(self) -> str:
        compressed = self.elements - self.dense_elements
        density = f" = {100 * self.kept / compressed:.3g} %" if compressed else ""
        stages = ", ".join(f"{stage} {1000 * seconds:.3g} ms" for stage, seconds in self.seconds.items())
        lines = [
            f"{self.method} on {self.ranks} ranks, {self.steps:,} steps"
            + (f", {self.skipped:,} skipped" if self.skipped else ""),
            f"sent      {_bytes(self.sent)} instead of {_bytes(self.dense)}: {self.ratio:.4g}x less",
            f"last step {self.kept:,} of {compressed:,} coordinates{density} (asked: {self.asked:,}),"
            f" {self.dense_elements:,} dense, gain {self.gain:.3f}",
            f"stages    {stages or 'no step yet'}",
            f"memory    {_bytes(self.residual_bytes)} kept for later, {_bytes(self.workspace_bytes)} work space",
        ]
        if self.uncompressed:
            names = ", ".join(f"{name} ({reason})" for name, reason in self.uncompressed.items())
            lines.append(f"dense     {names}")
        if self.decisions:
            lines.insert(1, f"decided   {self.decisions[-1]['text']}")
        return "\n".join(lines)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.3g} {unit}" if unit != "B" else f"{count} B"
        size /= 1000
    raise AssertionError
