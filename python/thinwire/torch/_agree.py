"""Ranks compare what they were told, before anything depends on it."""

from __future__ import annotations

import hashlib
import json
from typing import Optional

from thinwire.errors import BadState, RanksDisagree
from thinwire.torch._group import TorchGroup

#: Bytes of a reason that travel.
_REASON = 1000


def agree(group: TorchGroup, told: "dict[str, str]") -> None:
    """Fails on every rank, with both values, if some rank was told something else. All ranks call it together."""
    text = json.dumps(list(told.items())).encode()
    digests = group.gather(hashlib.sha256(text).digest())
    if all(digest == digests[0] for digest in digests):
        return
    for rank, theirs in enumerate(group.gather_unequal(text)):
        if theirs != text:
            raise RanksDisagree(f"rank {rank} was told something else: {_difference(told, dict(json.loads(theirs)))}")


def all_well(group: TorchGroup, problem: Optional[str]) -> None:
    """Fails on every rank if the state of some rank has a problem. All ranks call it together."""
    mine = (problem or "").encode()[:_REASON]
    reasons = [theirs.decode(errors="replace").strip() for theirs in group.gather(mine.ljust(_REASON))]
    if problem:
        raise BadState(problem)
    for rank, reason in enumerate(reasons):
        if reason:
            raise BadState(f"rank {rank} can't load its state: {reason}")


def _difference(mine: "dict[str, str]", theirs: "dict[str, str]") -> str:
    for name, value in mine.items():
        if theirs.get(name) != value:
            return f"{name} is {theirs.get(name, 'not there')} there and {value} here"
    return ", ".join(f"{name} is {theirs[name]} there and not here" for name in theirs.keys() - mine.keys())
