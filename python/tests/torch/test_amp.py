"""Infinities and NaNs: with a loss scaler the step is skipped everywhere, without one everybody gets an exception."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ranks import run
from small import batch, checksum, everything, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw


def _scaled_step(ddp: Any, scaler: Any, optimizer: Any, rank: int, step: int, factor: float = 1.0) -> None:
    x, y = batch(rank, step)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(ddp(x), y.bfloat16())
    scaler.scale(loss * factor).backward()
    scaler.step(optimizer)
    scaler.update()


def skips(rank: int, method: str, cap: float) -> None:
    model = mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    sync = tw.compress(ddp, method, scaler=scaler, **everything(method))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        _scaled_step(ddp, scaler, optimizer, rank, step)
    before, weights = sync.residual(), checksum(model)
    assert any(values.any() for values in before.values())
    _scaled_step(ddp, scaler, optimizer, rank, 4, float("inf") if rank == 1 else 1.0)
    after = sync.residual()
    assert checksum(model) == weights, "the weights were changed"
    assert scaler.get_scale() == 512.0
    for name, values in before.items():
        assert torch.equal(values, after[name]), f"the residual of {name} was changed"
    assert sync.report().skipped == 1
    _scaled_step(ddp, scaler, optimizer, rank, 5)
    assert checksum(model) != weights and sync.report().steps == 5


def test_a_step_with_an_infinity_on_one_rank_is_skipped_on_all() -> None:
    run(2, skips, "redsync", 25.0)
    run(2, skips, "topk", 0.002)
    run(4, skips, "ar-topk", 0.002)


def scales(rank: int, scale: float, growth_interval: int) -> "tuple[int, dict[str, torch.Tensor]]":
    """The weights and what is kept after some steps with this scale; powers of two leave the bits as they are."""
    model = mlp()
    ddp = DistributedDataParallel(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    sync = tw.compress(ddp, "topk", scaler=scaler, **everything("topk"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        scaler.scale(nn.functional.mse_loss(ddp(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return checksum(model), sync.residual()


def test_what_is_kept_does_not_depend_on_the_scale() -> None:
    constant = run(2, scales, 1.0, 1000)
    for other in (run(2, scales, 4096.0, 1000), run(2, scales, 16.0, 2)):
        for (bits, kept), (other_bits, other_kept) in zip(constant, other):
            assert bits == other_bits
            assert all(torch.equal(values, other_kept[name]) for name, values in kept.items())


def switched_off(rank: int) -> str:
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "topk", scaler=torch.amp.GradScaler("cpu", enabled=False))
    train(rank, ddp, range(2))
    try:
        (ddp(batch(rank, 0)[0]).sum() * (float("inf") if rank == 0 else 1.0)).backward()
    except thinwire.StepSkipped as error:
        return str(error) if sync.report().skipped == 1 else "not counted"
    return "nothing"


def test_a_scaler_that_is_off_is_none() -> None:
    assert all("rank 0" in said for said in run(2, switched_off))


class Tables(nn.Module):
    """A compressed layer, and gradients that can't be compressed: sparse and 64-bit ones."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.table = nn.Linear(8, 8), nn.Embedding(20, 8, sparse=True)
        self.wide = nn.Parameter(torch.randn(8, dtype=torch.float64))
        self.scale = {"layer": 1.0, "table": 1.0, "wide": 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = {
            "layer": self.layer(x),
            "table": self.table(x[:, 0].abs().mul(9).long() % 20),
            "wide": x * self.wide,
        }
        for name, part in parts.items():
            part.register_hook(lambda gradient, name=name: gradient * self.scale[name])
        return parts["layer"] + parts["table"] + parts["wide"].float()


def two_optimisers(rank: int, loop: bool) -> int:
    """An overflow on rank 1 in any kind of gradient skips all of the step on all ranks."""
    model = Tables()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    settings = {"scaler": scaler, **everything("topk", 0.2)}
    wrapped: Any = model if loop else DistributedDataParallel(model)
    sync: Any = tw.Synchronizer(model.named_parameters(), "topk", **settings) if loop else None
    sync = sync or tw.compress(wrapped, "topk", **settings)
    optimizers = [
        torch.optim.SparseAdam([model.table.weight], 0.1),
        torch.optim.SGD(model.layer.parameters(), 0.1),
        torch.optim.SGD([model.wide], 0.1),
    ]

    def step(number: int) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * number + rank))
        scaler.scale(wrapped(x).square().mean()).backward()
        if loop:
            sync.synchronize()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    for number in range(3):
        step(number)
    for count, which in enumerate(model.scale):
        before, weights = sync.residual(), checksum(model)
        assert any(values.any() for values in before.values())
        model.scale[which] = float("inf") if rank == 1 else 1.0
        step(10 + count)
        model.scale[which] = 1.0
        assert checksum(model) == weights, f"{which}: the weights were changed"
        for name, values in sync.residual().items():
            assert torch.equal(values, before[name]), f"{which}: the residual of {name} was changed"
        assert sync.report().skipped == count + 1 and scaler.get_scale() == 512.0 / 2**count
        step(20 + count)
        assert checksum(model) != weights
    return checksum(model)


@pytest.mark.parametrize("loop", [False, True], ids=["ddp", "loop"])
def test_an_overflow_skips_gradients_of_all_kinds(loop: bool) -> None:
    one, two = run(2, two_optimisers, loop)
    assert one == two


class Poison(torch.autograd.Function):
    """Passes values on, and puts a NaN into the gradient."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, place: int) -> torch.Tensor:
        context.place = place
        return values.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> "tuple[torch.Tensor, None]":  # type: ignore[override]
        gradient = gradient.clone()
        gradient.view(-1)[context.place] = float("nan")
        return gradient, None


class Poisoned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.place = -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.first.weight if self.place < 0 else Poison.apply(self.first.weight, self.place)
        return self.second(torch.tanh(nn.functional.linear(x, weight, self.first.bias)))  # type: ignore[no-any-return]


def poisoned(rank: int, method: str, options: "dict[str, Any]") -> "tuple[str, int]":
    model = Poisoned()
    ddp = DistributedDataParallel(model, **options)
    sync = tw.compress(ddp, method, **everything(method))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(rank, ddp, range(3), optimizer)
    weights, before = checksum(model), sync.residual()
    model.place = 37 if rank == 1 else -1
    said = "nothing"
    try:
        train(rank, ddp, range(3, 4), optimizer)
    except thinwire.StepSkipped as error:
        said = str(error)
    assert checksum(model) == weights
    assert all(not p.grad.any() for p in model.parameters()), "gradients of a skipped step are zeros"
    after = sync.residual()
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, rtol=1e-4, atol=1e-6)
    # DDP goes on too.
    model.place = -1
    train(rank, ddp, range(4, 7), optimizer)
    assert sync.report().steps == 6 and sync.report().skipped == 1
    return said, checksum(model)


def test_a_nan_on_one_rank_is_an_exception_on_all_and_the_next_step_may_follow() -> None:
    for method in ("redsync", "ar-topk", "dense"):
        for options in ({}, {"bucket_cap_mb": 0.0001}, {"static_graph": True}, {"find_unused_parameters": True}):
            results = run(2, poisoned, method, options)
            assert results[0] == results[1]
            for word in ("rank 1", "first.weight", "37", "NaN"):
                assert word in results[0][0], results[0][0]
