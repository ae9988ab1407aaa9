"""Ranks compare what they were told, before anything depends on it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from thinwire.errors import RanksDisagree


def agree(group: Any, told: "dict[str, str]") -> None:
    """Fails on every rank, with both values, if some rank was told something else. All ranks call it together."""
    text = json.dumps(list(told.items())).encode()
    digests = gather(group, hashlib.sha256(text).digest())
    if all(digest == digests[0] for digest in digests):
        return
    lengths = [int.from_bytes(length, "little") for length in gather(group, len(text).to_bytes(8, "little"))]
    texts = gather(group, text.ljust(max(lengths)))
    for rank, theirs in enumerate(texts):
        if theirs.strip() != text:
            raise RanksDisagree(f"rank {rank} was told something else: {_difference(told, dict(json.loads(theirs)))}")


def gather(group: Any, mine: bytes) -> "list[bytes]":
    """The messages of all ranks, which must be of the same length."""
    import ctypes

    if group.size == 1:
        return [mine]
    length = len(mine)
    outgoing = ctypes.create_string_buffer(mine, length)
    incoming = ctypes.create_string_buffer(length * group.size)
    group.all_gather(ctypes.addressof(outgoing), length, ctypes.addressof(incoming))
    return [incoming.raw[rank * length : (rank + 1) * length] for rank in range(group.size)]


def _difference(mine: "dict[str, str]", theirs: "dict[str, str]") -> str:
    for name, value in mine.items():
        if theirs.get(name) != value:
            return f"{name} is {theirs.get(name, 'not there')} there and {value} here"
    return ", ".join(f"{name} is {theirs[name]} there and not here" for name in theirs.keys() - mine.keys())
