"""What ranks tell each other when something is lost, beside the collectives that do not work any more."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist

#: How many seconds the others get to say that they are still there.
LAST_WORDS = 2.5


class Words:
    """The last words of the ranks of a group, kept in the store that the ranks met by.

    A rank that gives up says why, so that the others need not wait for their timeout. A rank that loses the group says
    so too: whoever is silent then is the one that was missing.
    """

    def __init__(self, meeting: str, rank: int, size: int) -> None:
        # torch knows stores that can be cloned, its types do not.
        store: Any = dist.distributed_c10d._get_default_store()
        try:
            # A connection of its own: another thread may wait on the first one for long.
            self._store = store.clone()
        except (RuntimeError, AttributeError):  # A store that can not be cloned.
            self._store = store
        #: Of all keys of this meeting.
        self.prefix = f"thinwire/{meeting}"
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]

    def arrive(self) -> None:
        """Says that this rank has come to make the group."""
        self._store.set(f"{self.prefix}/here/{self._rank}", "")

    def absent(self) -> "list[int]":
        """The ranks that have not come."""
        return [rank for rank in self._others if not self._store.check([f"{self.prefix}/here/{rank}"])]

    def say(self, reason: str, began: bool) -> None:
        """Says why this rank has given up; `began`: it was not another rank's doing."""
        try:
            self._store.set(f"{self.prefix}/{self._rank}", ("!" if began else "?") + reason[:2000])
            self._store.set(f"{self.prefix}/anybody", "")
        except Exception:  # The store is gone with the rank that kept it: there is nobody to tell.
            pass

    def anybody(self) -> bool:
        """Whether some rank has given up."""
        return bool(self._store.check([f"{self.prefix}/anybody"]))

    def explain(self, here: str) -> str:
        """What happened, from what was seen here and what the others say. Names the rank that began it."""
        self.say(here, began=False)
        until = time.monotonic() + LAST_WORDS
        try:
            words = self._heard()
            while len(words) < len(self._others) and not _began(words) and time.monotonic() < until:
                time.sleep(0.05)
                words = self._heard()
        except Exception:
            return f"{here}; the store that the ranks met by is gone: rank 0, if it kept the store, has ended"
        if began := _began(words):
            return "; ".join(f"rank {rank} gave up: {reason}" for rank, reason in began.items())
        silent = [str(rank) for rank in self._others if rank not in words]
        if silent:
            return f"{here}; no word from rank{'s' * (len(silent) > 1)} {', '.join(silent)}: ended, stuck, or busy"
        return "; ".join([here, *(f"rank {rank} says: {reason[1:]}" for rank, reason in words.items())])

    def _heard(self) -> "dict[int, str]":
        words = {}
        for rank in self._others:
            key = f"{self.prefix}/{rank}"
            if self._store.check([key]):
                words[rank] = self._store.get(key).decode(errors="replace")
        return words


def _began(words: "dict[int, str]") -> "dict[int, str]":
    """The reasons of the ranks that began it."""
    return {rank: reason[1:] for rank, reason in words.items() if reason.startswith("!")}
