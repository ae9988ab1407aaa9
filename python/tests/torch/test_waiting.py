"""Waiting for torch's work a little at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ranks import run

from thinwire.torch import _group


class Work:
    """Is done after some waits, and ends as it is told; `late` has it end between a wait and the question."""

    def __init__(self, waits: int, error: "str | None" = None, late: bool = False) -> None:
        self.waits, self.error, self.late = waits, error, late

    def wait(self, _: object) -> None:
        if self.waits > 0:
            self.waits -= 1
            raise RuntimeError("Operation timed out!")
        if self.error:
            raise RuntimeError(self.error)

    def is_completed(self) -> bool:
        if self.late:
            self.waits = 0
        return self.waits == 0


def test_work_that_ends_just_after_the_time_was_over_has_not_failed() -> None:
    assert _group._finished(Work(0))
    assert not _group._finished(Work(2))
    assert _group._finished(Work(1, late=True))


def test_work_that_failed_says_why() -> None:
    for work in (Work(0, "a peer is gone"), Work(1, "a peer is gone", late=True)):
        with pytest.raises(RuntimeError, match="a peer is gone"):
            _group._finished(work)


def gathers(rank: int, everywhere: bool) -> "tuple[list[bytes], int]":
    """Long messages, and the size of the largest collective that they took."""
    group = _group.TorchGroup(timeout=timedelta(seconds=60))
    _group.CHUNK, sizes, wait = 1000, [], group._run

    def measured(what: str, start: object, *tensors: object) -> None:
        sizes.append(max(tensor.numel() for tensor in tensors))  # type: ignore[attr-defined]
        wait(what, start, *tensors)  # type: ignore[arg-type]

    group._run = measured  # type: ignore[assignment]
    try:
        return group.gather_unequal(bytes([rank]) * [2500, 10][rank], everywhere), max(sizes)
    finally:
        _group.CHUNK = 4 << 20
        group.close()


def test_a_long_message_is_sent_in_chunks_with_a_deadline_each() -> None:
    (first, largest), (second, _) = run(2, gathers, False)
    assert first == [bytes(2500), bytes([1]) * 10] and second == []
    # What rank 0 receives of both.
    assert largest == 2000
    (first, largest), (second, _) = run(2, gathers, True)
    assert first == second == [bytes(2500), bytes([1]) * 10] and largest == 2000


def test_a_back_end_without_a_deadline_gets_one() -> None:
    group = object.__new__(_group.TorchGroup)
    group._lost, group._has_deadline, group.timeout = None, False, timedelta(seconds=0.01)
    work = Work(10**9)
    with pytest.raises(RuntimeError, match="not done within 0.01 s"):
        group._wait(work)
    group._has_deadline = True
    group._wait(Work(1000))
