"""Whatever DDP accepts, compress accepts: with everything sent, the gradients are those of plain DDP."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable

import pytest
import torch
from ranks import run
from small import everything
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import thinwire.torch as tw

STEPS = 5


class Net(nn.Module):
    """Two layers, and whatever a case adds."""

    def __init__(self, **added: "nn.Module | nn.Parameter") -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(6, 32), nn.Linear(32, 3)
        for name, value in added.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.second(torch.tanh(self.first(x)))
        for name, child in self.named_children():
            if name not in ("first", "second"):
                dtype = next(child.parameters()).dtype
                out = out + child(x.to(dtype)).float().sum() / 7
        return out  # type: ignore[no-any-return]


class Checkpointed(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)  # type: ignore[no-any-return]


class Tied(Net):
    def __init__(self) -> None:
        super().__init__(third=nn.Linear(6, 32))
        self.third.weight = self.first.weight


class Branches(nn.Module):
    """Two losses, with no parameter in common."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.one, self.two = nn.Linear(6, 30), nn.Linear(6, 30)

    def forward(self, x: torch.Tensor) -> "tuple[torch.Tensor, torch.Tensor]":
        return self.one(x), self.two(x)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.repeat(1, 8).reshape(-1, 3, 4, 4))[:, :, 0, 0]  # type: ignore[no-any-return]


def _frozen() -> nn.Module:
    model = Net()
    model.first.weight.requires_grad_(False)
    return model


def _ignored() -> nn.Module:
    model = Net()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["first.weight"])
    return model


def _empty(dtype: torch.dtype = torch.float32) -> nn.Module:
    return Net(empty=nn.Linear(6, 0).to(dtype))


Backward = Callable[[DistributedDataParallel, torch.Tensor, int], None]


def _one(ddp: DistributedDataParallel, x: torch.Tensor, step: int) -> None:
    ddp(x).square().mean().backward()


def _accumulated(ddp: DistributedDataParallel, x: torch.Tensor, step: int) -> None:
    with ddp.no_sync():
        _one(ddp, x, step)
    _one(ddp, 1 - x, step)


def _autocast(ddp: DistributedDataParallel, x: torch.Tensor, step: int) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        out = ddp(x)
    out.float().square().mean().backward()


def _one_after_the_other(ddp: DistributedDataParallel, x: torch.Tensor, step: int) -> None:
    one, two = ddp(x)
    two.square().mean().backward()
    one.square().mean().backward()


#: How the model is made, DDP's arguments, and a step.
CASES: "dict[str, tuple[Callable[[], nn.Module], dict[str, Any], Backward]]" = {
    "plain": (Net, {}, _one),
    "small buckets": (Net, {"bucket_cap_mb": 0.0001}, _one),
    "static graph": (Net, {"static_graph": True, "bucket_cap_mb": 0.0001}, _one),
    "static graph, unused": (Net, {"static_graph": True, "find_unused_parameters": True}, _one),
    "bucket views": (Net, {"gradient_as_bucket_view": True}, _one),
    "bucket views, static": (Net, {"gradient_as_bucket_view": True, "static_graph": True}, _one),
    "find unused": (Net, {"find_unused_parameters": True, "bucket_cap_mb": 0.0001}, _one),
    "skip unused": (Net, {"find_unused_parameters": True, "skip_all_reduce_unused_params": True}, _one),
    "no broadcast at the start": (Net, {"init_sync": False, "broadcast_buffers": False}, _one),
    "two backward passes": (Branches, {"bucket_cap_mb": 0.0001}, _one_after_the_other),
    "no_sync": (Net, {}, _accumulated),
    "no_sync, views": (Net, {"gradient_as_bucket_view": True}, _accumulated),
    "no_sync, unused": (Net, {"find_unused_parameters": True}, _accumulated),
    "checkpointed": (Checkpointed, {}, _one),
    "tied": (Tied, {}, _one),
    "frozen": (_frozen, {}, _one),
    "ignored": (_ignored, {}, _one),
    "channels last": (ChannelsLast, {}, _one),
    "empty": (_empty, {"bucket_cap_mb": 0.0001}, _one),
    "empty, views": (_empty, {"gradient_as_bucket_view": True}, _one),
    "only an empty one of a dtype": (lambda: _empty(torch.bfloat16), {}, _one),
    "only an empty one of 64 bits": (lambda: _empty(torch.float64), {}, _one),
    "bf16 beside": (lambda: Net(low=nn.Linear(6, 20).bfloat16()), {"bucket_cap_mb": 0.0001}, _one),
    "fp16 beside": (lambda: Net(low=nn.Linear(6, 20).half()), {}, _one),
    "all dtypes": (lambda: Net(low=nn.Linear(6, 20).bfloat16(), high=nn.Linear(6, 20).double()), {}, _one),
    "only 64 bits": (lambda: nn.Linear(6, 3).double(), {}, lambda ddp, x, step: _one(ddp, x.double(), step)),
    "only bf16": (lambda: nn.Linear(6, 3).bfloat16(), {}, lambda ddp, x, step: _one(ddp, x.bfloat16(), step)),
    "autocast": (Net, {}, _autocast),
}


@contextlib.contextmanager
def _defaults(device: "str | None", dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


def differences(
    rank: int,
    names: "list[str]",
    by_hand: bool = False,
    device: "str | None" = None,
    dtype: torch.dtype = torch.float32,
) -> "dict[str, float]":
    return {name: _difference(rank, name, by_hand, device, dtype) for name in names}


def _difference(rank: int, name: str, by_hand: bool, device: "str | None", dtype: torch.dtype) -> float:
    """The largest difference to plain DDP, in units of what the dtype can tell apart."""
    make, options, backward = CASES[name]
    model = make()
    plain, ddp = (DistributedDataParallel(each, **options) for each in (copy.deepcopy(model), model))
    settings = everything("topk", 1.0)
    inputs = [torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * step + rank)) for step in range(STEPS)]
    with _defaults(device, dtype):
        if by_hand:
            sync = tw.HookState(ddp.module, "topk", **settings)
            ddp.register_comm_hook(sync, tw.hook)
        else:
            sync = tw.compress(ddp, "topk", **settings)
    worst = 0.0
    for step, x in enumerate(inputs):
        for each in (plain, ddp):
            each.zero_grad()
            with _defaults(device, dtype) if each is ddp and backward is _one else contextlib.nullcontext():
                backward(each, x, step)
        for one, other in zip(plain.module.parameters(), ddp.module.parameters()):
            assert (one.grad is None) == (other.grad is None), name
            if one.grad is not None and one.numel():
                error = float((one.grad - other.grad).abs().max()) / torch.finfo(one.dtype).eps
                worst = max(worst, error / max(1.0, float(one.grad.abs().max())))
    assert sync.report().steps == STEPS
    sync.load_state_dict(sync.state_dict())
    sync.close()
    return worst


@pytest.mark.parametrize("by_hand", [False, True])
def test_options_of_ddp(by_hand: bool) -> None:
    for found in run(2, differences, list(CASES), by_hand, deadline=200):
        # Sums in another order, and means of 16 bits that are rounded once and not twice.
        assert all(difference <= 8 for difference in found.values()), found


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("device", [None, "meta"])
def test_any_default_dtype_and_device(device: "str | None", dtype: torch.dtype) -> None:
    names = ["plain", "bf16 beside", "all dtypes", "bucket views"]
    for found in run(2, differences, names, False, device, dtype, deadline=200):
        assert all(difference <= 8 for difference in found.values()), found
