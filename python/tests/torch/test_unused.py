"""Layers that no rank uses in a step: no gradient is lost, and no step hangs where DDP skips a bucket."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from ranks import RanksFailed, harm, run
from small import checksum, everything
from test_failures import error_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


class Turns(nn.Module):
    """Layers of which each step uses one."""

    def __init__(self, layers: int = 3, width: int = 40) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        return self.layers[layer](x)


def sums(rank: int, method: str, view: bool, to_none: bool, frozen: bool = False) -> "tuple[list[float], int, float]":
    """By layer, the part of the sum of all gradients that is neither in the sum of the means nor kept. A checksum of
    the model, and the size of what arrived."""
    model = Turns(4) if frozen else Turns()
    options: "dict[str, Any]" = {"find_unused_parameters": True, "gradient_as_bucket_view": view}
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.004, **options)
    if frozen:
        # DDP goes on to count it.
        model.layers[0].requires_grad_(False)
    first = 1 if frozen else 0
    layers = list(model.layers)[first:]
    sync = tw.compress(ddp, method, steps_per_epoch=10, **everything(method, 0.02))
    expected = [torch.zeros_like(layer.weight) for layer in layers]
    arrived = [torch.zeros_like(layer.weight) for layer in layers]
    for step in range(60):
        turn = step % len(layers)
        ddp.zero_grad(set_to_none=to_none)
        x = torch.randn(16, 40, generator=torch.Generator().manual_seed(100 * step + rank))
        everybody = [torch.randn(16, 40, generator=torch.Generator().manual_seed(100 * step + r)) for r in range(2)]
        ddp(x, first + turn).square().sum().backward()
        for other in everybody:
            # By hand: the gradient of the sum of squares.
            weight = layers[turn].weight.detach()
            expected[turn] += (2 * (other @ weight.T)).T @ other / 2
        for total, layer in zip(arrived, layers):
            total += 0 if layer.weight.grad is None else layer.weight.grad
    residual = sync.residual()
    lost = []
    # The mean of the residuals of all ranks is still to come.
    for number, (total, came) in enumerate(zip(expected, arrived)):
        kept = residual[f"layers.{first + number}.weight"].clone()
        torch.distributed.all_reduce(kept)
        lost.append(float((total - came - kept / 2).norm() / total.norm()))
    sync.close()
    return lost, checksum(model), float(sum(came.norm() for came in arrived))


@pytest.mark.parametrize("method", ["topk", "redsync", "ar-topk", "gaussian-k"])
def test_layers_used_in_turn_lose_nothing(method: str) -> None:
    (lost, _, one), (_, _, two) = run(2, sums, method, False, True)
    assert max(lost) < 1e-4, lost
    assert one == two


def test_nor_where_one_was_frozen_after_the_model_was_wrapped() -> None:
    for lost, _, _ in run(2, sums, "topk", False, True, True):
        assert max(lost) < 1e-4, lost


@pytest.mark.parametrize("to_none", [True, False])
def test_nor_with_gradients_as_bucket_views(to_none: bool) -> None:
    for lost, _, _ in run(2, sums, "topk", True, to_none):
        assert max(lost) < 1e-4, lost


class Two(nn.Module):
    """The first layer is not used in every step, and is DDP's last bucket."""

    def __init__(self, sizes: "tuple[int, int]" = (100, 5000)) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(*sizes)
        self.second = nn.Linear(*sizes)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.second(x) + (self.first(x) if both else 0)


def skipping(rank: int, pattern: "list[bool]", by_hand: bool) -> "tuple[float, int, int]":
    options: "dict[str, Any]" = {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}
    plain = DistributedDataParallel(Two(), bucket_cap_mb=1.5, **options)
    ddp = DistributedDataParallel(Two(), bucket_cap_mb=1.5, **options)
    if by_hand:
        # The hook is not told which model it is for.
        sync = tw.HookState(ddp.module, "topk", timeout=30, **everything("topk", 1.0))
        ddp.register_comm_hook(sync, tw.hook)
    else:
        sync = tw.compress(ddp, "topk", timeout=30, **everything("topk", 1.0))
    worst = 0.0
    for step, both in enumerate(pattern):
        x = torch.randn(4, 100, generator=torch.Generator().manual_seed(10 * step + rank))
        for model in (plain, ddp):
            model.zero_grad()
            model(x, both).square().mean().backward()
        for one, other in zip(plain.parameters(), ddp.parameters()):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                worst = max(worst, float((one.grad - other.grad).abs().max()))
    steps = sync.report().steps
    sync.close()
    return worst, steps, checksum(ddp)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("pattern", [[False] * 4, [True, False, True, False], [False, True, True]])
def test_buckets_that_ddp_skips(pattern: "list[bool]", by_hand: bool) -> None:
    for worst, steps, _ in run(2, skipping, pattern, by_hand, deadline=60):
        assert worst < 1e-6 and steps == len(pattern)


def model_not_found(rank: int, given: bool) -> "tuple[str, str, float]":
    """A hook that was registered by hand, where no object can be found."""
    options: "dict[str, Any]" = {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}
    ddp = DistributedDataParallel(Two((10, 5000)), bucket_cap_mb=0.15, **options)
    ddp.register_comm_hook(tw.HookState(ddp if given else ddp.module, "topk", timeout=60), tw.hook)
    # Hides all objects there are from gc.get_objects().
    gc.freeze()
    x = torch.randn(4, 10)

    def steps() -> None:
        ddp(x, True).square().mean().backward()
        # The last bucket is skipped.
        ddp(x, False).square().mean().backward()

    try:
        return error_of(steps)
    finally:
        gc.unfreeze()


def test_a_model_that_can_not_be_found_must_be_given() -> None:
    assert [kind for kind, _, _ in run(2, model_not_found, True)] == ["nothing"] * 2
    for kind, text, _ in harm(2, model_not_found, False):
        assert kind == "BadArgument" and "HookState(ddp)" in text, (kind, text)


def test_the_tests_themselves_notice_a_hang() -> None:
    with pytest.raises(RanksFailed):
        run(2, _hang, deadline=3)


def _hang(rank: int) -> None:
    torch.futures.Future().wait()
