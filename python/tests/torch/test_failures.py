"""Ranks that disagree, die, stall or are interrupted: every rank gets an exception that names the one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, harm, run
from small import everything, mlp, step_timeout, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

#: Where nobody is waited for in vain.
TIMEOUT = 60
#: In a step, where somebody is.
SHORT = 5


def error_of(work: "Callable[[], Any]") -> "tuple[str, str, float]":
    """The kind and words of the exception, and the seconds until it came."""
    begun = time.monotonic()
    try:
        work()
    except BaseException as error:
        return type(error).__name__, str(error), time.monotonic() - begun
    return "nothing", "", time.monotonic() - begun


def _steps(rank: int, steps: range = range(1), **settings: Any) -> None:
    ddp = DistributedDataParallel(mlp())
    tw.compress(ddp, timeout=TIMEOUT, **settings)
    train(rank, ddp, steps)


def told_differently(rank: int) -> "list[tuple[str, str, float]]":
    other = rank == 1
    cases: "list[Callable[[], Any]]" = [
        lambda: _steps(rank, method="redsync" if other else "topk"),
        lambda: _steps(rank, method="topk", density=0.02 if other else 0.03),
        lambda: _steps(rank, method="topk", mean="samples" if other else "ranks"),
        lambda: _steps(rank, method="topk", scaler=torch.amp.GradScaler("cpu") if other else None),
        lambda: _loop(rank, {"first": (3, 2), "second": (4,)}, {"first": (3, 2), "other": (4,)}),
        lambda: _loop(rank, {"first": (3, 2), "second": (4,)}, {"first": (2, 3), "second": (4,)}),
        lambda: _loop(rank, {"first": (3, 2), "second": (4,)}, {"first": (3, 2)}),
        lambda: _loop(rank, {"first": (3, 2)}, {"first": (3, 2)}, torch.bfloat16),
    ]
    return [error_of(case) for case in cases]


def _loop(rank: int, shapes: Any, others: Any, other_dtype: torch.dtype = torch.float32) -> None:
    mine, dtype = (others, other_dtype) if rank == 1 else (shapes, torch.float32)
    parameters = [(name, nn.Parameter(torch.ones(shape, dtype=dtype))) for name, shape in mine.items()]
    tw.Synchronizer(parameters, "topk", timeout=TIMEOUT).synchronize()


def test_ranks_that_were_told_different_things() -> None:
    words = [("topk", "redsync"), ("0.03", "0.02"), ("ranks", "samples"), ("given", "not given"), ("second", "other")]
    words += [("[3, 2]", "[2, 3]"), ("second", "bucket 0"), ("float32", "bfloat16")]
    for found in run(2, told_differently):
        for (kind, text, seconds), both in zip(found, words):
            assert kind == "RanksDisagree", (kind, text)
            assert all(word in text for word in both), text
            assert seconds < TIMEOUT


def other_density(rank: int) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "topk", timeout=TIMEOUT)
    train(rank, ddp, range(2))
    sync.set_density(0.2 if rank == 1 else 0.1)
    return error_of(lambda: train(rank, ddp, range(2, 3)))


def test_densities_that_were_set_differently() -> None:
    assert [kind for kind, _, _ in harm(2, other_density)] == ["RanksDisagree"] * 2


def goes_missing(rank: int, how: str, who: int, method: str, noticed: Path) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002, broadcast_buffers=False)
    with step_timeout(SHORT if how == "sleeps" else TIMEOUT):
        tw.compress(ddp, method, **everything(method))
    train(rank, ddp, range(3))
    if rank == who:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "ended":
            os._exit(3)
        while len(os.listdir(noticed)) < dist.get_world_size() - 1:
            time.sleep(0.1)
    found = error_of(lambda: train(rank, ddp, range(3, 4)))
    (noticed / str(rank)).touch()
    return found


@pytest.mark.parametrize(
    ("ranks", "how", "who", "method"),
    [
        (2, "killed", 1, "redsync"),
        (2, "sleeps", 1, "ar-topk"),
        (4, "killed", 2, "ar-topk"),
        (4, "ended", 3, "dense"),
        (4, "sleeps", 0, "redsync"),
    ],
)
def test_a_rank_that_is_missing_is_named(ranks: int, how: str, who: int, method: str, tmp_path: Path) -> None:
    found = harm(ranks, goes_missing, how, who, method, tmp_path)
    for rank in set(range(ranks)) - {who}:
        kind, text, seconds = found[rank]
        assert kind == "GroupLost", (kind, text)
        assert f"no word from rank {who}:" in text, text
        assert how == "sleeps" or seconds < TIMEOUT, seconds


def test_rank_0_dies(tmp_path: Path) -> None:
    # It keeps the store.
    kind, text, seconds = harm(2, goes_missing, "killed", 0, "redsync", tmp_path)[1]
    assert kind == "GroupLost" and "rank 0" in text and seconds < TIMEOUT, (kind, text, seconds)


class Fails(nn.Module):
    """Fails in the backward pass, between two buckets, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 4)
        self.now = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.now:
            x.register_hook(self._fail)
        return self.second(x)  # type: ignore[no-any-return]

    def _fail(self, gradient: torch.Tensor) -> None:
        raise ArithmeticError("this rank can't divide")


def fails(rank: int) -> "list[tuple[str, str, float]]":
    model = Fails()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
    tw.compress(ddp, "topk", timeout=TIMEOUT)
    train(rank, ddp, range(4))
    model.now = rank == 1
    found = [error_of(lambda: train(rank, ddp, range(4, 5)))]
    if rank == 1:
        os._exit(1)
    found.append(error_of(lambda: train(rank, ddp, range(5, 6))))
    return found


def test_an_exception_in_the_midst_of_a_step_and_the_end_of_its_process() -> None:
    found = harm(2, fails)
    assert found[1] is None
    kind, text, seconds = found[0][0]
    assert kind == "GroupLost" and "rank 1" in text and seconds < TIMEOUT, found
    assert found[0][1][2] < TIMEOUT


def never_comes(rank: int, noticed: Path) -> "tuple[str, str, float]":
    if rank == 1:
        while not noticed.exists():
            time.sleep(0.1)
        os._exit(0)
    found = error_of(lambda: tw.Synchronizer(mlp().parameters(), timeout=2))
    noticed.touch()
    return found


def test_a_rank_that_does_not_come_to_the_meeting(tmp_path: Path) -> None:
    kind, text, _ = harm(2, never_comes, tmp_path / "noticed")[0]
    assert kind == "GroupLost" and "rank 1 did not come within 2 s" in text, (kind, text)


def sparse_too_late(rank: int) -> "tuple[str, str, float]":
    """A gradient that was dense in the first step is sparse in the second, on one rank."""
    weight = nn.Parameter(torch.ones(10, 4))
    sync = tw.Synchronizer([("weight", weight)], "topk", timeout=TIMEOUT)
    weight.grad = torch.ones(10, 4)
    sync.synchronize()
    weight.grad = torch.ones(10, 4).to_sparse(1) if rank == 1 else torch.ones(10, 4)
    return error_of(sync.synchronize)


def test_a_reason_is_told_the_others() -> None:
    found = harm(2, sparse_too_late)
    assert found[1][0] == "BadArgument" and "sparse" in found[1][1]
    assert found[0][0] == "GroupLost" and "rank 1 gave up" in found[0][1] and "sparse" in found[0][1], found
    assert found[0][2] < TIMEOUT


def interrupted(rank: int, first: bool, folder: Path) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp(), broadcast_buffers=False)
    tw.compress(ddp, "redsync", timeout=TIMEOUT)
    train(rank, ddp, range(0 if first else 3))
    if rank == 1:
        while not (folder / "over").exists():
            time.sleep(0.05)
        # What the other has sent before may be enough for the first of these.
        return error_of(lambda: train(rank, ddp, range(3, 6)))
    (folder / "ready").touch()
    return error_of(lambda: train(rank, ddp, range(3, 4)))


@pytest.mark.parametrize("first", [False, True])
def test_control_c_ends_a_wait_at_once(first: bool, tmp_path: Path) -> None:
    ranks = Ranks(2)
    try:
        ranks.start(interrupted, first, tmp_path)
        while not (tmp_path / "ready").exists():
            assert not ranks.pipes[0].poll(0.1), ranks.pipes[0].recv()
        time.sleep(1)
        sent = time.monotonic()
        os.kill(ranks.processes[0].pid, signal.SIGINT)  # type: ignore[arg-type]
        # The other rank does not come before this one has ended.
        _, (kind, _, seconds) = ranks.result(0, sent + TIMEOUT)
        assert kind == "KeyboardInterrupt" and seconds < TIMEOUT, (kind, seconds)
        (tmp_path / "over").touch()
        _, (kind, text, seconds) = ranks.result(1, sent + 2 * TIMEOUT)
        assert kind == "GroupLost" and "rank 0" in text and "interrupted" in text, (kind, text)
        assert seconds < TIMEOUT
    finally:
        ranks.end()


def bad_arguments(rank: int) -> "dict[str, str]":
    def made(tensor: torch.Tensor) -> "Callable[[], Any]":
        return lambda: tw.Synchronizer([("w", nn.Parameter(tensor))], "topk").synchronize()

    model = mlp()
    ddp = DistributedDataParallel(model)
    tw.compress(ddp)
    cases = {
        "meta": made(torch.ones(3, device="meta")),
        "no parameters": lambda: tw.Synchronizer([]),
        "a text": lambda: tw.Synchronizer(["text"]),  # type: ignore[list-item]
        "not DDP": lambda: tw.compress(model),  # type: ignore[arg-type]
        "no such method": lambda: tw.compress(ddp, "topp"),
        "mean": lambda: tw.compress(ddp, mean="median"),
        "density": lambda: tw.compress(ddp, density=2.0),
        "samples": lambda: tw.Synchronizer(mlp().parameters()).set_samples(3),
        "model": lambda: tw.HookState("text"),  # type: ignore[arg-type]
        "twice": lambda: tw.compress(ddp),
    }
    return {name: ": ".join(error_of(case)[:2]) for name, case in cases.items()}


def test_bad_arguments_are_explained() -> None:
    for found in run(2, bad_arguments):
        for name, text in found.items():
            assert text.startswith("BadArgument: "), (name, text)
        words = {"meta": "meta", "twice": "can only be called once", "not DDP": "Synchronizer", "mean": "median"}
        words |= {"no such method": "topp", "density": "density", "samples": "mean='samples'"}
        for name, word in words.items():
            assert word in found[name], (name, found[name])
