"""After a rank was lost, those that are left save what they have, and another run goes on from it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import harm, run
from small import everything, mlp, train
from test_uncompressed import Mixed
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw

#: No test here waits for it: who is lost has ended, or says so.
TIMEOUT = 60


def _start(rank: int, form: str, **settings: Any) -> "tuple[Any, Any]":
    """A step to call with its number, and the synchronizer."""
    model = mlp()
    settings = {"timeout": TIMEOUT, **everything("topk"), **settings}
    if form == "loop":
        sync = tw.Synchronizer(model.named_parameters(), "topk", bucket_bytes=2000, **settings)

        def step(number: int) -> None:
            for position, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(1000 * rank + 10 * number + position)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            sync.synchronize()

        return step, sync
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.002, broadcast_buffers=False)
    hooked = tw.compress(ddp, "topk", **settings)
    return lambda number: train(rank, ddp, range(number, number + 1)), hooked


def survives(rank: int, form: str, lost: int, folder: Path) -> "dict[str, Any] | None":
    step, sync = _start(rank, form)
    for number in range(4):
        step(number)
    before = sync.state_dict()
    if rank == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(thinwire.GroupLost) as error:
        step(4)
        # What the lost one had sent may have been enough for that.
        step(5)
    assert f"rank {lost}" in str(error.value), str(error.value)
    state = sync.state_dict()
    assert sync.state_dict().keys() == state.keys()
    torch.save(state, folder / f"{rank}.pt")
    if state["step"] == before["step"]:
        mine, then = state[f"rank {rank}"]["residual"], before[f"rank {rank}"]["residual"]
        for name, values in then.items():
            # The failed step's gradient was added and taken out again.
            torch.testing.assert_close(mine[name], values, rtol=1e-5, atol=1e-6)
    with pytest.raises(thinwire.GroupLost):
        sync.state_dict(all_ranks=True)
    # DDP itself goes no further after a pass that was not finished.
    with pytest.raises(thinwire.GroupLost if form == "loop" else (thinwire.GroupLost, RuntimeError)):
        step(6)
    return state


def loads(rank: int, states: "list[Any]", form: str) -> "tuple[list[str], dict[str, torch.Tensor]]":
    step, sync = _start(rank, form)
    said = []
    for lost in ((), (0,), (2,)):
        with pytest.raises(thinwire.BadState) as error:
            sync.load_state_dict(states, lost_ranks=lost)
        said.append(str(error.value))
    sync.load_state_dict(states, lost_ranks=[1])
    kept = sync.residual()
    step(5)
    return said, kept


@pytest.mark.parametrize("form", ["ddp", "loop"])
def test_survivors_save_and_fewer_ranks_go_on(form: str, tmp_path: Path) -> None:
    saved = harm(3, survives, form, 1, tmp_path)
    assert saved[1] is None
    states = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 2)]
    found = run(2, loads, states, form)
    for said, _ in found:
        assert "rank 1" in said[0] and "lost_ranks=[1]" in said[0], said
        assert "[0] are said to be lost" in said[1] and "[2] are said to be lost" in said[2], said
    # Each of the two takes what one of the two had.
    for number, old in enumerate((0, 2)):
        for name, values in states[number][f"rank {old}"]["residual"].items():
            assert torch.equal(found[number][1][name], values), name


def in_the_midst(rank: int, first: bool) -> None:
    """Given up in the midst of a step, with buckets on their way."""
    step, sync = _start(rank, "ddp")
    for number in range(4):
        step(number)
    before = sync.residual()
    if rank == 1:
        # It hands one bucket over, or none, and leaves.
        add, handed = sync._add, []

        def leave(bucket: Any) -> None:
            if first or handed:
                raise ArithmeticError("this rank can't go on")
            handed.append(bucket)
            add(bucket)

        sync._add = leave  # type: ignore[method-assign]
    with pytest.raises(ArithmeticError if rank == 1 else thinwire.GroupLost):
        step(4)
    after = sync.residual()
    assert sync.state_dict()["step"] == 4
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first", [False, True])
def test_a_step_that_was_left_is_taken_back_on_every_rank(first: bool) -> None:
    harm(2, in_the_midst, first)


def other_buckets(rank: int) -> None:
    """A rank is lost where the engine takes DDP's second buckets."""
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002, broadcast_buffers=False)
    sync = tw.compress(ddp, "topk", timeout=TIMEOUT, **everything("topk"))
    train(rank, ddp, range(1))
    before = sync.residual()
    if rank == 1:
        sync._engine.native = Leaves()
    with pytest.raises(thinwire.GroupLost):
        train(rank, ddp, range(1, 2))
    assert sync.state_dict()["step"] == 1
    for name, values in sync.residual().items():
        assert torch.equal(values, before[name]), name


class Leaves:
    """An engine whose process ends when it is to take other buckets."""

    def relayout(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_is_lost_when_buckets_change() -> None:
    assert harm(2, other_buckets)[1] is None


def uncompressed(rank: int, form: str) -> None:
    """A rank is lost where gradients are averaged that can't be compressed."""
    model = Mixed("float64")
    settings = {"timeout": TIMEOUT, **everything("topk")}
    if form == "loop":
        wrapped: Any = model
        sync: Any = tw.Synchronizer(model.named_parameters(), "topk", **settings)
    else:
        wrapped = DistributedDataParallel(model)
        sync = tw.compress(wrapped, "topk", **settings)

    def step(number: int) -> None:
        wrapped.zero_grad()
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * number + rank))
        wrapped(x).square().mean().backward()
        if form == "loop":
            sync.synchronize()

    for number in range(4):
        step(number)
    before = sync.state_dict()
    if rank == 1:
        sync._engine.group.sum = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(thinwire.GroupLost):
        step(4)
    after = sync.state_dict()
    assert after["step"] == before["step"] == 4
    for name, values in before["rank 0"]["residual"].items():
        torch.testing.assert_close(after["rank 0"]["residual"][name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["ddp", "loop"])
def test_a_rank_that_is_lost_beside_the_compressed_gradients(form: str) -> None:
    assert harm(2, uncompressed, form)[1] is None


def interrupted(rank: int, done: Path) -> None:
    step, sync = _start(rank, "ddp")
    for number in range(4):
        step(number)
    before = sync.residual()
    if rank == 1:
        while not done.exists():
            time.sleep(0.05)
        with pytest.raises(thinwire.GroupLost):
            step(4)
            step(5)
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(2)
    with pytest.raises(KeyboardInterrupt):
        step(4)
    done.touch()
    after = sync.residual()
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, rtol=1e-5, atol=1e-6)


def test_a_rank_that_was_interrupted_saves(tmp_path: Path) -> None:
    harm(2, interrupted, tmp_path / "done")
