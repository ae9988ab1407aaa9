"""Hooks that are set up wrongly: an error that names the argument. And what is left of hooks that nobody needs."""

from __future__ import annotations

import gc
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, harm, run
from small import everything, mlp, step_timeout, train
from test_failures import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw
from thinwire.torch._options import Options


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("process_group", "x"),
        ("scaler", 1),
        ("optimizer", 1),
        *(("timeout", value) for value in (True, "60", float("nan"), float("inf"), 0, -1, 1e300, timedelta(0))),
        *(("threads", value) for value in (True, 0, 1.5, "2")),
        *(("steps_per_epoch", value) for value in (True, float("nan"), float("inf"), 0, "2")),
        *(("check_replicas_every", value) for value in (True, -1, float("nan"), "1")),
        ("run_ahead", "back"),
        ("mean", None),
    ],
)
def test_a_bad_argument_is_named(argument: str, value: Any) -> None:
    kind, text, _ = error_of(lambda: Options(**{argument: value}))
    assert kind == "BadArgument" and text.startswith(f"{argument} is {value!r}"), (kind, text)
    assert "expected" in text


def test_good_arguments_are_taken() -> None:
    for timeout in (1, 0.5, timedelta(seconds=3), 1e9):
        deadline = Options(timeout=timeout).deadline
        assert deadline is not None and deadline > timedelta(0)


def hook_with(state: Any) -> "tuple[str, str, float]":
    ddp = DistributedDataParallel(mlp())
    ddp.register_comm_hook(state, tw.hook)
    return error_of(lambda: ddp(torch.ones(1, 8)).sum().backward())


def no_state(rank: int) -> "tuple[str, str, float]":
    return hook_with(None)


def test_a_hook_without_its_state() -> None:
    for kind, text, _ in run(2, no_state):
        assert kind == "BadArgument" and "None; expected a HookState" in text, (kind, text)


def one_state_for_two(rank: int, named: bool) -> "tuple[str, str, float]":
    models = [DistributedDataParallel(mlp()), DistributedDataParallel(mlp())]
    state = tw.HookState(models[0] if named else None, "topk", timeout=20)
    for ddp in models[: 2 if not named else 1]:
        ddp.register_comm_hook(state, tw.hook)
    if named:
        train(rank, models[0], range(3))
        models[1].register_comm_hook(state, tw.hook)
    return error_of(lambda: train(rank, models[1], range(1)))


@pytest.mark.parametrize("named", [False, True])
def test_one_state_for_two_models(named: bool) -> None:
    for kind, text, _ in harm(2, one_state_for_two, named):
        assert kind == "BadArgument" and "every DDP model needs a HookState of its own" in text, (kind, text)


def another_hook(rank: int) -> "list[tuple[str, str, float]]":
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel.distributed import _MixedPrecision

    hooked = DistributedDataParallel(mlp())
    hooked.register_comm_hook(None, allreduce_hook)
    built_in = DistributedDataParallel(mlp())
    built_in._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    found = [error_of(lambda: tw.compress(hooked)), error_of(lambda: tw.compress(built_in))]
    # Its constructor needs a GPU, on which it casts.
    mixed = DistributedDataParallel(mlp())
    mixed.mixed_precision = _MixedPrecision(param_dtype=torch.bfloat16)
    return [*found, error_of(lambda: tw.compress(mixed))]


def test_a_model_that_has_a_hook() -> None:
    for hooked, built_in, mixed in run(2, another_hook):
        assert hooked[0] == "BadArgument" and "allreduce_hook" in hooked[1], hooked
        assert "can only be called once" in built_in[1], built_in
        assert mixed[0] == "BadArgument" and "mixed_precision" in mixed[1], mixed


def replaced(rank: int) -> "list[str]":
    """A parameter that is replaced between HookState(model) and DDP(model)."""
    model = mlp()
    state = tw.HookState(model, "topk", **everything("topk"))
    model[2].weight = nn.Parameter(torch.zeros_like(model[2].weight))
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, tw.hook)
    train(rank, ddp, range(3))
    return sorted(state.residual())


def test_a_replaced_parameter_keeps_its_name() -> None:
    assert run(2, replaced) == [sorted(name for name, _ in mlp().named_parameters())] * 2


def dropped(rank: int) -> "tuple[int, int]":
    """Threads and open files that 50 hooks add which are never closed."""

    def count() -> "tuple[int, int]":
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def one() -> None:
        ddp = DistributedDataParallel(mlp())
        tw.compress(ddp, "topk")
        train(rank, ddp, range(2))

    one()
    gc.collect()
    before = count()
    for _ in range(50):
        one()
    until = time.monotonic() + 60
    while True:
        gc.collect()
        added = tuple(now - then for now, then in zip(count(), before))
        # Of the last one something may still be ending.
        if (added[0] <= 8 and added[1] <= 16) or time.monotonic() > until:
            return added[0], added[1]
        time.sleep(0.1)


def test_hooks_of_dropped_models_leave_nothing() -> None:
    for threads, files in harm(2, dropped, deadline=200):
        assert threads <= 8 and files <= 16, (threads, files)


def shown(rank: int) -> "list[str]":
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "topk")
    found = [repr(sync)]
    train(rank, ddp, range(2))
    found += [repr(sync), ddp._get_ddp_logging_data()["comm_hook"]]
    return found


def test_what_is_shown_of_a_hook() -> None:
    for rank, (before, after, name) in enumerate(run(2, shown)):
        assert before == f"<thinwire.torch.HookState topk, rank {rank} of 2, step 0>"
        assert after.endswith("step 2>") and name == "thinwire_hook"


def deadlines(rank: int) -> "tuple[float, float, float]":
    patient = dist.new_group(timeout=timedelta(minutes=30))
    hasty = dist.new_group(timeout=timedelta(seconds=40))
    weights = [nn.Parameter(torch.zeros(3))]
    made = [
        tw.Synchronizer(weights, process_group=patient),
        tw.Synchronizer(weights, process_group=hasty),
        tw.Synchronizer(weights, process_group=hasty, timeout=300),
    ]
    found = [sync._engine.connect().timeout.total_seconds() for sync in made]
    for sync in made:
        sync.close()
    return found[0], found[1], found[2]


def test_the_deadline_of_a_step_is_two_minutes() -> None:
    assert run(2, deadlines) == [(120, 40, 300)] * 2


def until_the_end(rank: int, seconds: float, ready: Path) -> "tuple[str, str, int]":
    ddp = DistributedDataParallel(mlp(), broadcast_buffers=False)
    with step_timeout(seconds):
        sync = tw.compress(ddp, "topk")
    train(rank, ddp, range(3))
    (ready / str(rank)).touch()
    # For ever, on a rank whose peer answers.
    kind, text, _ = error_of(lambda: train(rank, ddp, range(3, 1_000_000)))
    return kind, text, sync.state_dict()["step"]


@pytest.mark.parametrize("stopped", [1, 0], ids=["rank 1", "rank 0, which keeps the store"])
def test_a_stopped_rank_is_noticed(stopped: int, tmp_path: Path) -> None:
    ranks = Ranks(2)
    try:
        ranks.start(until_the_end, 5, tmp_path)
        until = time.monotonic() + 60
        while len(os.listdir(tmp_path)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(ranks.processes[stopped].pid, signal.SIGSTOP)  # type: ignore[arg-type]
        well, answer = ranks.result(1 - stopped, time.monotonic() + 60)
        assert well, answer
        kind, text, step = answer
        words = "no answer from the store" if stopped == 0 else "no word from rank 1"
        assert kind == "GroupLost" and words in text and f"rank {stopped}" in text, (kind, text)
        # What is left can be saved.
        assert step >= 3
    finally:
        ranks.end()
