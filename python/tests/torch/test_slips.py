"""Slips that are easily made: a call on one rank only, states with nothing in them, saving after the end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks, harm, run
from small import everything, mlp, step_timeout, train
from test_failures import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw
from thinwire.torch._device import one_device

TIMEOUT = 60


def _compressed(method: str = "topk", **settings: Any) -> "tuple[DistributedDataParallel, tw.HookState]":
    ddp = DistributedDataParallel(mlp())
    return ddp, tw.compress(ddp, method, timeout=TIMEOUT, **{**everything(method), **settings})


def states_without_a_residual(rank: int) -> "list[float]":
    fresh = _compressed()[1].state_dict()
    ddp, dense = _compressed("dense")
    train(rank, ddp, range(3))
    kept = []
    for state, begun in ((fresh, False), (fresh, True), (dense.state_dict(), False), (dense.state_dict(), True)):
        for method in ("topk", "topk:momentum=0.9"):
            ddp, sync = _compressed(method)
            if begun:
                train(rank, ddp, range(2))
            sync.load_state_dict(state)
            if begun:
                kept.append(sum(float(values.abs().sum()) for values in sync.residual().values()))
            train(rank, ddp, range(2))
            assert sync.state_dict()["step"] == state["step"] + 2
    return kept


@pytest.mark.filterwarnings("ignore:.*momentum")
def test_a_state_of_which_nothing_was_kept_empties_the_memory() -> None:
    for kept in run(2, states_without_a_residual):
        assert kept == [0.0] * 4


def saved_after_the_end(rank: int) -> "tuple[str, str, float]":
    ddp, sync = _compressed()
    train(rank, ddp, range(2))
    sync.close()
    return error_of(sync.state_dict)


def test_saving_after_the_end_is_an_error_and_not_an_empty_state() -> None:
    for kind, text, _ in run(2, saved_after_the_end):
        assert kind == "Error" and "save before close()" in text, (kind, text)


def on_one_rank_only(rank: int, what: str) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp())
    with step_timeout(4):
        sync = tw.compress(ddp, "topk", **everything("topk"))
    train(rank, ddp, range(2))
    state = sync.state_dict()

    def slip() -> None:
        if rank == 0:
            sync.state_dict(all_ranks=True) if what == "save" else sync.load_state_dict(state)
        train(rank, ddp, range(2, 9))

    return error_of(slip)


@pytest.mark.parametrize("what", ["save", "load"])
def test_a_call_on_one_rank_only_ends_in_time(what: str) -> None:
    for kind, text, seconds in harm(2, on_one_rank_only, what):
        assert kind == "GroupLost" and seconds < TIMEOUT, (kind, text, seconds)


def alone_at_the_meeting(rank: int, ready: Path) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp())
    if rank == 1:
        return "", "", 0.0
    ready.touch()
    return error_of(lambda: tw.compress(ddp, timeout=TIMEOUT))


def test_control_c_ends_the_wait_for_the_others(tmp_path: Path) -> None:
    ranks, ready = Ranks(2), tmp_path / "ready"
    try:
        ranks.start(alone_at_the_meeting, ready)
        while not ready.exists():
            assert not ranks.pipes[0].poll(0.1), ranks.pipes[0].recv()
        time.sleep(1)
        sent = time.monotonic()
        os.kill(ranks.processes[0].pid, signal.SIGINT)  # type: ignore[arg-type]
        _, (kind, _, seconds) = ranks.result(0, sent + 2 * TIMEOUT)
        assert kind == "KeyboardInterrupt" and seconds < TIMEOUT, (kind, seconds)
    finally:
        ranks.end()


def beyond_half_precision(rank: int) -> bool:
    weight = nn.Parameter(torch.zeros(1000, dtype=torch.float16))
    sync = tw.Synchronizer([("w", weight)], "topk", density=0.001)
    for _ in range(40):
        weight.grad = torch.full((1000,), 3000.0, dtype=torch.float16)
        sync.synchronize()
        if not torch.isfinite(weight.grad).all():
            return False
    return True


def test_what_was_kept_for_long_stays_finite_in_half_precision() -> None:
    assert run(2, beyond_half_precision) == [True, True]


def test_devices_that_can_not_be_used_are_named() -> None:
    parameters = nn.Linear(2, 2).named_parameters(), nn.Linear(2, 2, device="meta").named_parameters("other")
    with pytest.raises(thinwire.BadArgument, match="other.weight is on meta; expected the CPU or a CUDA device"):
        tw.Synchronizer(parameters[1])
    with pytest.raises(thinwire.BadArgument, match="^weight is on cpu and other.weight is on meta; .* on one device"):
        one_device([*parameters[0], *nn.Linear(2, 2, device="meta").named_parameters("other")])


def bad_numbers(rank: int) -> "list[tuple[str, str, float]]":
    ddp = DistributedDataParallel(mlp())
    settings: "list[dict[str, Any]]" = [{"threads": 0}, {"timeout": 0}, {"check_replicas_every": -1}]
    return [error_of(lambda: tw.compress(ddp, **each)) for each in settings]


def test_numbers_that_can_not_be_are_refused() -> None:
    for found in run(2, bad_numbers):
        assert [kind for kind, _, _ in found] == ["BadArgument"] * 3, found
