"""Processes that are forked from a rank: they end cleanly, and the rank goes on."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from typing import Any, Callable

import numpy
import torch
from ranks import harm
from small import everything, mlp, train
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import thinwire
import thinwire.torch as tw

#: Seconds in which a child must end.
DEADLINE = 30.0


def _status(work: "Callable[[], Any]") -> "Any":
    """How a forked child ends that does this work and then what ``sys.exit`` comes to: exit handlers, the destructors
    of all objects. (``sys.exit`` itself would return to the loop of the rank.)"""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(work() or 0)
        finally:
            ctypes.pythonapi.Py_Exit(code)
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


def _may_have_children() -> None:
    """The processes of ranks are daemons, and multiprocessing lets these have none."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


def children(rank: int) -> "dict[str, Any]":
    _may_have_children()
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "topk", **everything("topk"))
    compressor = thinwire.Compressor(1 << 18, "topk", threads=2)
    gradient = numpy.ones(1 << 18, dtype=numpy.float32)
    compressor.compress(gradient)
    train(rank, ddp, range(3))
    found: "dict[str, Any]" = {}

    def uses() -> int:
        """Every use is an error that says why."""
        errors = []
        for work in (sync.state_dict, lambda: train(rank, ddp, range(1)), lambda: sync.load_state_dict({})):
            try:
                work()
            except thinwire.GroupLost as error:
                errors.append("forked" in str(error))
        sync.close()
        return 0 if errors == [True] * 3 else 1

    def compresses() -> int:
        return 0 if compressor.compress(gradient).kept else 1

    def drops() -> None:
        nonlocal ddp, sync
        del ddp, sync

    found["ends"] = _status(lambda: 7)
    found["os._exit"] = _status(lambda: os._exit(5))
    found["uses it"] = _status(uses)
    found["compresses"] = _status(compresses)
    found["drops it"] = _status(drops)
    process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(4,))
    process.start()
    process.join(DEADLINE)
    found["multiprocessing"] = process.exitcode
    # The ranks themselves go on, and can meet again.
    train(rank, ddp, range(3, 6))
    again = DistributedDataParallel(mlp())
    tw.compress(again, "topk")
    train(rank, again, range(2))
    found["steps"] = sync.report().steps
    return found


def test_a_forked_child_ends_and_harms_nobody() -> None:
    ends = {"ends": 7, "os._exit": 5, "uses it": 0, "compresses": 0, "drops it": 0, "multiprocessing": 4}
    assert harm(2, children, deadline=300) == [{**ends, "steps": 6}] * 2


def in_a_step(rank: int) -> "list[Any]":
    """Forks while the engine's thread is in a collective, which the other rank has not entered yet."""
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002)
    sync = tw.compress(ddp, "topk", **everything("topk"))
    train(rank, ddp, range(3))
    found = []
    wait = sync._wait

    def forks() -> None:
        found.append(_status(lambda: 3))
        wait()

    for step in range(3, 6):
        sync._wait = forks if rank == step % 2 else wait  # type: ignore[method-assign]
        train(rank, ddp, range(step, step + 1))
    return found


def test_a_fork_in_the_midst_of_a_step() -> None:
    assert harm(2, in_a_step, deadline=200) == [[3], [3, 3]]


def with_workers(rank: int) -> "tuple[int, float]":
    _may_have_children()
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "redsync", **everything("redsync"))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 4))
    for _ in range(3):
        for x, y in DataLoader(data, batch_size=16, num_workers=2, multiprocessing_context="fork"):
            optimizer.zero_grad()
            (ddp(x) - y).square().mean().backward()
            optimizer.step()
    return sync.report().steps, float(next(ddp.parameters()).sum())


def test_a_data_loader_with_forked_workers() -> None:
    one, two = harm(2, with_workers, deadline=200)
    assert one == two and one[0] == 12
