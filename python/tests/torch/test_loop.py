"""Loops without DDP, the form of a hook, two models at once, and a part of the ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from ranks import run
from small import batch, checksum, everything, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


class Mixed(nn.Module):
    """Two dtypes, channels-last, tied, frozen and unused parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.narrow = nn.Linear(16, 16).bfloat16()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.frozen, self.unused = nn.Linear(16, 16).requires_grad_(False), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.narrow(self.convolution(x).flatten(1).bfloat16()).float()
        return self.second(torch.tanh(self.frozen(self.first(x))))  # type: ignore[no-any-return]


def mixed(rank: int, named: bool, method: str, bucket_bytes: int, ranks: int) -> None:
    model, plain = Mixed(), Mixed()
    parameters = model.named_parameters() if named else model.parameters()
    sync = tw.Synchronizer(parameters, method, bucket_bytes=bucket_bytes, **everything(method, 1.0))  # type: ignore[arg-type]
    for step in range(3):
        for one in (model, plain):
            torch.manual_seed(10 * step + rank)
            one.zero_grad()
            one(torch.randn(2, 3, 4, 4)).square().mean().backward()
        sync.synchronize()
        for (name, mine), expected in zip(model.named_parameters(), plain.parameters()):
            if not mine.requires_grad:
                assert mine.grad is None
                continue
            mean = torch.zeros_like(expected) if expected.grad is None else expected.grad.clone()
            mean = mean.float().contiguous()
            dist.all_reduce(mean)
            close = 2e-2 if expected.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(mine.grad.float(), mean / ranks, rtol=close, atol=close / 10, check_stride=False)
            assert mine.grad.dtype == mine.dtype and mine.grad.stride() == mine.stride(), name
    assert ("first.weight" in sync.residual()) == named


def test_a_loop_gives_the_mean() -> None:
    for method in ("topk", "dense", "iwp"):
        run(2, mixed, method == "topk", method, 100, 2)
    run(2, mixed, False, "redsync", 25 << 20, 2)
    run(4, mixed, True, "topk", 1000, 4)


def resumed_loop(rank: int, method: str) -> None:
    """Its buckets are always the same: the bits are, with every method."""

    def start() -> "tuple[Any, Any, Any]":
        model = mlp()
        sync = tw.Synchronizer(model.named_parameters(), method, bucket_bytes=2000, **everything(method))
        return model, sync, torch.optim.SGD(model.parameters(), 0.1)

    def go(model: Any, sync: Any, optimizer: Any, steps: range) -> None:
        train(rank, model, steps, optimizer, each=lambda step: sync.synchronize())

    model, sync, optimizer = start()
    go(model, sync, optimizer, range(4))
    saved, weights = sync.state_dict(), {name: values.clone() for name, values in model.state_dict().items()}
    go(model, sync, optimizer, range(4, 8))
    expected = checksum(model)
    model, sync, optimizer = start()
    model.load_state_dict(weights)
    sync.load_state_dict(saved)
    go(model, sync, optimizer, range(4, 8))
    assert checksum(model) == expected, method


def test_a_resumed_loop_has_the_same_bits() -> None:
    for method in ("fft", "topk", "gaussian-k", "iwp", "redsync"):
        run(2, resumed_loop, method)


def skipped_loop(rank: int) -> None:
    import thinwire

    model = mlp()
    sync = tw.Synchronizer(model.named_parameters(), "topk", **everything("topk"))
    model(batch(rank, 0)[0]).sum().backward()
    model[0].weight.grad[1, 2] = float("nan") if rank == 0 else 0.0  # type: ignore[index,union-attr]
    try:
        sync.synchronize()
        raise AssertionError("no exception")
    except thinwire.StepSkipped as error:
        assert "rank 0" in str(error) and "0.weight" in str(error), error
    assert all(not parameter.grad.any() for parameter in model.parameters())
    model(batch(rank, 0)[0]).sum().backward()
    sync.synchronize()


def test_a_skipped_step_of_a_loop() -> None:
    run(2, skipped_loop)


def hooked(rank: int) -> None:
    """Registered by hand it gives what compress() gives."""
    sums = []
    for form in ("compress", "with a model", "without", "with DDP"):
        model = mlp()
        ddp = DistributedDataParallel(model)
        if form == "compress":
            tw.compress(ddp, "topk", **everything("topk"))
        else:
            named = {"with a model": model, "with DDP": ddp}.get(form)
            state = tw.HookState(named, "topk", **everything("topk"))
            ddp.register_comm_hook(state, tw.hook)
        train(rank, ddp, range(5))
        sums.append(checksum(model))
        if form == "with a model":
            assert "0.weight" in state.residual()
    assert len(set(sums)) == 1, sums


def test_the_form_of_a_hook() -> None:
    run(2, hooked)


def two_models(rank: int) -> None:
    """As in a GAN: two models, each with its own state, in turns and both at once."""

    def start(seed: int) -> "tuple[Any, Any]":
        model = mlp()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
        return ddp, tw.compress(ddp, "topk", **everything("topk", 0.1 * seed))

    alone, _ = start(1)
    train(rank, alone, range(6))
    (first, sync), (second, other) = start(1), start(2)
    for step in range(6):
        train(rank, first, range(step, step + 1))
        train(rank, second, range(step, step + 1))
    assert checksum(alone) == checksum(first) != checksum(second)
    # One backward pass through both.
    second(torch.nn.functional.pad(first(batch(rank, 0)[0]), (0, 4))).sum().backward()
    assert sync.report().steps == other.report().steps == 7
    assert sync.report().kept < other.report().kept


def test_two_models_at_once() -> None:
    run(2, two_models)


def part_of_the_ranks(rank: int) -> int:
    """Ranks 1 and 3 train by themselves, and more often than the others."""
    pair = dist.new_group([1, 3])
    if rank in (0, 2):
        return 0
    for _ in range(2):
        model = mlp()
        ddp = DistributedDataParallel(model, process_group=pair)
        tw.compress(ddp, "ar-topk", **everything("ar-topk"))
        train(rank, ddp, range(5))
    return checksum(model)


def test_a_part_of_the_ranks() -> None:
    sums = run(4, part_of_the_ranks)
    assert sums[1] == sums[3] != 0


def alone(rank: int) -> None:
    model, plain = mlp(), mlp()
    ddp = DistributedDataParallel(model)
    sync = tw.compress(ddp, "topk", **everything("topk", 1.0))
    train(rank, ddp, range(3))
    train(rank, plain, range(3))  # type: ignore[arg-type]
    for mine, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, expected)
    assert sync.report().ratio == 1.0 and "1 ranks" in str(sync.report())
    sync.load_state_dict(sync.state_dict(all_ranks=True))


def test_one_rank_by_itself() -> None:
    run(1, alone)
