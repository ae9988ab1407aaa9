"""With everything sent, the hook gives the gradients that DDP gives."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


class Tied(nn.Module):
    """The same weights twice, and some that are frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.frozen = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.frozen(self.first(x))))


class Branches(nn.Module):
    """Parts that are used or not, as the input says: `unused` are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.branches = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, unused: "set[int]" = frozenset()) -> torch.Tensor:  # type: ignore[assignment]
        x = self.trunk(x)
        for number, branch in enumerate(self.branches):
            if number not in unused:
                x = x + branch(x)
        return x


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))


def _convolution() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, 8))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _lone() -> nn.Module:
    return nn.Linear(8, 8, bias=False)


MODELS = {"mlp": _mlp, "convolution": _convolution, "tied": Tied, "branches": Branches, "lone": _lone}

#: Name: model, what DDP is told, dtype, and which branches are unused, by rank.
CASES: "dict[str, tuple[str, dict[str, Any], torch.dtype, Any]]" = {
    "plain": ("mlp", {}, torch.float32, None),
    "many buckets": ("mlp", {"bucket_cap_mb": 0.001}, torch.float32, None),
    "bucket views": ("mlp", {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}, torch.float32, None),
    "static graph": ("mlp", {"static_graph": True, "bucket_cap_mb": 0.001}, torch.float32, None),
    "unused on rank 1": (
        "branches",
        {"find_unused_parameters": True, "bucket_cap_mb": 0.0003},
        torch.float32,
        {1: {1}},
    ),
    "unused on all": ("branches", {"find_unused_parameters": True}, torch.float32, {0: {1}, 1: {1}, 2: {1}, 3: {1}}),
    "unused, static graph": ("branches", {"find_unused_parameters": True, "static_graph": True}, torch.float32, {}),
    "tied and frozen": ("tied", {}, torch.float32, None),
    "channels last": ("convolution", {"bucket_cap_mb": 0.001}, torch.float32, None),
    "one parameter": ("lone", {}, torch.float32, None),
    "bfloat16": ("mlp", {}, torch.bfloat16, None),
    "float16": ("mlp", {"gradient_as_bucket_view": True}, torch.float16, None),
}


def gradients(rank: int, case: str, method: "dict[str, Any] | None", accumulate: bool = False) -> "list[Any]":
    """The gradients of four steps of SGD; `method` None: DDP's own."""
    torch.manual_seed(1)
    kind, options, dtype, unused = CASES[case]
    model = MODELS[kind]().to(dtype)
    ddp = DistributedDataParallel(model, **options)
    sync = tw.compress(ddp, **method) if method is not None else None
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    found = []
    for step in range(4):
        for part in range(2 if accumulate else 1):
            torch.manual_seed(1000 * rank + 10 * step + part)
            x = torch.randn(4, 3, 6, 6) if kind == "convolution" else torch.randn(4, 8)
            later = accumulate and part == 0
            with ddp.no_sync() if later else contextlib.nullcontext():
                output = ddp(x.to(dtype), unused.get(rank, set())) if unused is not None else ddp(x.to(dtype))
                output.float().square().mean().backward()
        found.append({name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    if sync is not None:
        assert sync.report().steps == 4
        sync.close()
    return found


def compare(rank: int, cases: "list[str]", method: "dict[str, Any]", accumulate: bool = False) -> None:
    for case in cases:
        theirs = gradients(rank, case, None, accumulate)
        ours = gradients(rank, case, method, accumulate)
        dtype = CASES[case][2]
        close = {torch.float32: (1e-5, 1e-7), torch.bfloat16: (4e-2, 1e-3), torch.float16: (5e-3, 1e-4)}[dtype]
        for step, (mine, expected) in enumerate(zip(ours, theirs)):
            for name, gradient in expected.items():
                where = f"{case}, step {step}, {name}"
                assert (gradient is None) == (mine[name] is None), where
                if gradient is not None:
                    assert mine[name].dtype == gradient.dtype
                    rtol, atol = close
                    torch.testing.assert_close(
                        mine[name], gradient, rtol=rtol, atol=atol, msg=lambda m: f"{where}: {m}"
                    )


@pytest.mark.parametrize("method", ["dense", "topk", "redsync", "ar-topk"])
def test_two_ranks(method: str) -> None:
    given = {"method": method} if method == "dense" else {"method": method, "density": 1.0}
    run(2, compare, list(CASES), given)


def test_four_ranks() -> None:
    run(4, compare, list(CASES), {"method": "topk", "density": 1.0})


def test_gradient_accumulation() -> None:
    cases = ["plain", "many buckets", "bucket views", "tied and frozen"]
    run(2, compare, cases, {"method": "topk", "density": 1.0}, True)


def overlapped(rank: int) -> "list[int]":
    """How many buckets are on their way before the last one comes, step by step."""
    ddp = DistributedDataParallel(_mlp(), bucket_cap_mb=0.001)
    sync = tw.compress(ddp, "topk", 0.5)
    counts: "list[int]" = []
    finish = sync._finish
    sync._finish = lambda: (counts.append(sync._submitted), finish())[1]  # type: ignore[method-assign]
    for _ in range(4):
        ddp(torch.randn(4, 8)).square().mean().backward()
    return counts


def test_buckets_travel_while_others_are_computed() -> None:
    counts = run(2, overlapped)[0]
    # DDP makes other buckets after the first step; then ours have to be the same twice.
    assert counts[:2] == [0, 0] and counts[-1] > 1, counts


def copied(rank: int) -> None:
    """What DDP is told is not changed by what the model is: two models of one kind do not share anything."""
    model = _mlp()
    twin = copy.deepcopy(model)
    for one in (model, twin):
        ddp = DistributedDataParallel(one)
        tw.compress(ddp, "topk", 1.0)
        torch.manual_seed(rank)
        ddp(torch.randn(4, 8)).square().mean().backward()
    for mine, other in zip(model.parameters(), twin.parameters()):
        assert torch.equal(mine.grad, other.grad)  # type: ignore[arg-type]


def test_two_copies_of_a_model() -> None:
    run(2, copied)
