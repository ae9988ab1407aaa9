"""What ranks tell each other when something is lost, beside the collectives that do not work any more."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from typing import Any, Callable, Optional, TypeVar

import torch.distributed as dist

T = TypeVar("T")

#: How many seconds the others get to say that they are still there.
LAST_WORDS = 2.5
#: Seconds within which the store must answer.
ANSWER = 10.0
#: The name of threads that ask the store.
THREAD = "thinwire-store"


class StoreSilent(RuntimeError):
    """The store did not answer: the process that keeps it is stopped, or its machine is gone."""


class Words:
    """The last words of the ranks of a group, kept in the store that the ranks met by.

    A rank that gives up says why, so that the others need not wait for their timeout. A rank that loses the group says
    so too: whoever is silent then is the one that was missing.

    torch waits for the store's answers without a deadline, and that can't be interrupted. So every question is asked by
    a thread of its own, which is left behind if the store is silent.
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
        #: Whether anybody has given up: the answer that is on its way.
        self._asked: "Optional[Future[bool]]" = None

    def arrive(self) -> None:
        """Says that this rank has come to make the group."""
        _ask(lambda: self._store.set(f"{self.prefix}/here/{self._rank}", ""), ANSWER)

    def absent(self, seconds: float) -> "list[int]":
        """The ranks that have not come. The store has so many seconds to answer."""
        here = {rank: f"{self.prefix}/here/{rank}" for rank in self._others}
        return _ask(lambda: [rank for rank, key in here.items() if not self._store.check([key])], seconds)

    def say(self, reason: str, began: bool) -> None:
        """Says why this rank has given up; `began`: it was not another rank's doing."""
        # Without the store there is nobody to tell.
        with contextlib.suppress(Exception):
            _ask(lambda: self._set(reason, began), ANSWER)

    def anybody(self, seconds: float) -> bool:
        """Whether some rank has given up, as far as the store has answered. Waits for so many seconds at most."""
        if self._asked is None:
            self._asked = _answer(lambda: bool(self._store.check([f"{self.prefix}/anybody"])))
        try:
            found = self._asked.result(seconds)
        except TooLate:
            # It is still asked. The caller has a deadline.
            return False
        self._asked = None
        return found

    def explain(self, here: str) -> str:
        """What happened, from what was seen here and what the others say. Names the rank that began it."""
        try:
            _ask(lambda: self._set(here, began=False), ANSWER)
            until = time.monotonic() + LAST_WORDS
            words = _ask(self._heard, ANSWER)
            while len(words) < len(self._others) and not _began(words) and time.monotonic() < until:
                time.sleep(0.05)
                words = _ask(self._heard, ANSWER)
        except StoreSilent:
            return f"{here}; no answer from the store that the ranks met by: rank 0, if it keeps the store, is stuck"
        except Exception:
            return f"{here}; the store that the ranks met by is gone: rank 0, if it kept the store, has ended"
        if began := _began(words):
            return "; ".join(f"rank {rank} gave up: {reason}" for rank, reason in began.items())
        silent = [str(rank) for rank in self._others if rank not in words]
        if silent:
            return f"{here}; no word from rank{'s' * (len(silent) > 1)} {', '.join(silent)}: ended, stuck, or busy"
        return "; ".join([here, *(f"rank {rank} says: {reason[1:]}" for rank, reason in words.items())])

    def _set(self, reason: str, began: bool) -> None:
        self._store.set(f"{self.prefix}/{self._rank}", ("!" if began else "?") + reason[:2000])
        self._store.set(f"{self.prefix}/anybody", "")

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


def _ask(question: "Callable[[], T]", seconds: float) -> T:
    """The answer to a question to the store; an error if there is none in time."""
    try:
        return _answer(question).result(seconds)
    except TooLate:
        raise StoreSilent(f"no answer within {seconds:g} s") from None


def _answer(question: "Callable[[], T]") -> "Future[T]":
    """The answer to a question to the store, as soon as it is there."""
    answer: "Future[T]" = Future()

    def ask() -> None:
        try:
            found = question()
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    threading.Thread(target=ask, name=THREAD, daemon=True).start()
    return answer


def join(seconds: float) -> None:
    """Waits until no question is under way, for so many seconds at most."""
    until = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join(max(0.0, until - time.monotonic()))
