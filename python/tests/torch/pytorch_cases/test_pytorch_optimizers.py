"""What PyTorch's tests ask of optimisers around DDP: ZeRO, local SGD with model averaging, mixed precision."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from typing import Any

import models
import pytest
import torch
from compared import checksum
from ranks import run
from small import everything
from table import draw, square
from torch import nn
from torch.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


def start(density: float = 0.1, seed: int = 1, **options: Any) -> "tuple[DistributedDataParallel, tw.HookState]":
    torch.manual_seed(seed)
    ddp = DistributedDataParallel(models.Net(), **options)
    return ddp, tw.compress(ddp, "topk", **everything("topk", density))


def train(rank: int, ddp: Any, optimizer: Any, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        square(ddp(draw(ddp, rank, step))).backward()
        optimizer.step()


def same(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def sharded(rank: int, name: str, view: bool) -> int:
    """An optimiser whose state is spread over the ranks comes to what a whole one comes to."""
    kind = OPTIMIZERS[name]
    (one, _), (other, _) = start(find_unused_parameters=True), start(find_unused_parameters=True)
    trained = [p for p in one.parameters() if p.requires_grad]
    zero = ZeroRedundancyOptimizer(trained, kind, parameters_as_bucket_view=view, lr=0.01)
    whole = kind([p for p in other.parameters() if p.requires_grad], lr=0.01)
    train(rank, one, zero, range(5))
    train(rank, other, whole, range(5))
    same(one, other)
    # Their states fit each other.
    zero.consolidate_state_dict(to=0)
    if rank == 0:
        whole.load_state_dict(copy.deepcopy(zero.state_dict()))
    train(rank, one, zero, range(5, 8))
    train(rank, other, whole, range(5, 8))
    same(one, other)
    return checksum(list(one.parameters()))


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_zero(name: str) -> None:
    for view in (False, True):
        one, two = run(2, sharded, name, view)
        assert one == two, f"{view=}"


def sharded_with_uneven_inputs(rank: int) -> None:
    from torch.distributed.algorithms.join import Join

    ddp, sync = start()
    trained = [p for p in ddp.parameters() if p.requires_grad]
    zero = ZeroRedundancyOptimizer(trained, torch.optim.Adam, lr=0.01)
    with Join([ddp, zero]):
        train(rank, ddp, zero, range(3 + 2 * rank))
    assert sync.report().steps == 5


def test_zero_with_join() -> None:
    run(2, sharded_with_uneven_inputs)


def averager(name: str, size: int) -> Any:
    if name == "periodic":
        return averagers.PeriodicModelAverager(period=2, warmup_steps=3)
    groups = OrderedDict([(2, 2), (4, size)])
    return hierarchical_model_averager.HierarchicalModelAverager(period_group_size_dict=groups, warmup_steps=2)


def local_sgd(rank: int, size: int, name: str, view: bool) -> int:
    """PostLocalSGDOptimizer does what an optimiser and an averager do one after the other."""
    (one, _), (other, _) = start(gradient_as_bucket_view=view), start(gradient_as_bucket_view=view)
    first, second = averager(name, size), averager(name, size)
    both = PostLocalSGDOptimizer(torch.optim.SGD(one.parameters(), 0.03), first)
    alone = torch.optim.SGD(other.parameters(), 0.03)
    for step in range(8):
        train(rank, one, both, range(step, step + 1))
        train(rank, other, alone, range(step, step + 1))
        second.average_parameters(p for p in other.parameters() if p.requires_grad)
        same(one, other)
    assert first.step == second.step == 8
    return checksum(list(one.parameters()))


@pytest.mark.parametrize("name", ["periodic", "hierarchical"])
def test_post_local_sgd(name: str) -> None:
    size = 4 if name == "hierarchical" else 2
    for view in (False, True):
        results = run(size, local_sgd, size, name, view)
        assert all(result == results[0] for result in results), f"{view=}"


def reloaded(rank: int) -> None:
    ddp, _ = start()
    first, second = averager("periodic", 2), averager("periodic", 2)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), 0.03), first)
    train(rank, ddp, optimizer, range(6))
    state = optimizer.state_dict()
    other = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), 0.03), second)
    other.load_state_dict(copy.deepcopy(state))
    assert first.step == second.step == 6
    del state["step"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other.load_state_dict(state)
    assert second.step == 0 and any("step counter" in str(warning.message) for warning in said)
    train(rank, ddp, other, range(6, 9))


def test_post_local_sgd_goes_on_from_a_state() -> None:
    run(2, reloaded)


def mixed_precision(rank: int, view: bool) -> "tuple[int, int]":
    """autocast and a loss scaler, and one step with an infinity on one rank."""
    torch.manual_seed(1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1000)
    ddp = DistributedDataParallel(models.Net(), gradient_as_bucket_view=view)
    sync = tw.compress(ddp, "topk", scaler=scaler, **everything("topk", 0.1))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.03)
    for step in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = square(ddp(draw(ddp, rank, step)).float())
        scaler.scale(loss * (float("inf") if step == 4 and rank == 1 else 1.0)).backward()
        for parameter in ddp.parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None and parameter.grad.dtype == torch.float32
                assert bool(parameter.grad.isfinite().all()) == (step != 4)
        scaler.step(optimizer)
        scaler.update()
    assert (sync.report().steps, sync.report().skipped, scaler.get_scale()) == (7, 1, 128.0)
    return checksum(list(ddp.parameters())), sync.report().kept


def test_autocast_and_a_scaler() -> None:
    (one, two), (three, four) = run(2, mixed_precision, False), run(2, mixed_precision, True)
    assert one == two == three == four
