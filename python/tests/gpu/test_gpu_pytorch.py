"""PyTorch's own cases that need a GPU (see torch/pytorch_cases/cases.py): two ranks share one."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from given import DEVICE
from ranks import run

sys.path.insert(0, str(Path(__file__).parent.parent / "torch" / "pytorch_cases"))

import models
from compared import ALL, SOME, checksum, compared, supported
from small import everything
from table import CASES, draw, square
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

needs_gpu = pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")


@pytest.mark.parametrize("case", list(CASES))
def test_gradients(case: str) -> None:
    if not supported(CASES[case]):
        pytest.skip("this version of DDP has no such option")
    for mode in (ALL, SOME):
        one, two = run(2, compared, 2, case, mode, DEVICE)
        assert one == two, f"{mode}: replicas differ"


class Images(nn.Module):
    def __init__(self, affine: bool) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=0.99, affine=affine)
        self.second = nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))


#: Whether the normalisation has weights, the layout, and how many samples each rank has in each step.
NORMALIZED: "dict[str, tuple[bool, Any, tuple[int, int]]]" = {
    "plain": (True, torch.contiguous_format, (2, 2)),
    "channels last": (True, torch.channels_last, (2, 2)),
    "no weights": (False, torch.contiguous_format, (2, 2)),
    "one sample": (True, torch.contiguous_format, (1, 1)),
    "unlike numbers": (True, torch.contiguous_format, (2, 5)),
    "no sample on rank 0": (True, torch.contiguous_format, (0, 3)),
}


def normalized(rank: int, name: str) -> "tuple[int, int]":
    """Statistics over all ranks: with everything sent, gradients and running statistics are plain DDP's."""
    affine, layout, samples = NORMALIZED[name]
    torch.manual_seed(1)
    module = nn.SyncBatchNorm.convert_sync_batchnorm(Images(affine)).to(DEVICE, memory_format=layout)
    plain, ddp = DistributedDataParallel(copy.deepcopy(module)), DistributedDataParallel(module)
    sync = tw.compress(ddp, "topk", **everything("topk", 1.0))
    for step in range(3):
        x = draw(module, rank, step, samples[rank], 3, 9, 9).to(memory_format=layout)
        for one in (plain, ddp):
            one.zero_grad()
            (square(one(x)) / 100).backward()
        for theirs, mine in zip(plain.parameters(), ddp.parameters()):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    for theirs, mine in zip(plain.buffers(), ddp.buffers()):
        torch.testing.assert_close(mine, theirs)
    ddp.eval()
    if rank == 0:
        # No statistics are exchanged now.
        ddp.module(draw(module, 0, 0, 2, 3, 9, 9).to(memory_format=layout))
    sync.close()
    return checksum([p.grad for p in ddp.parameters()]), checksum(list(ddp.buffers()))  # type: ignore[misc]


@needs_gpu
@pytest.mark.parametrize("name", list(NORMALIZED))
def test_synchronised_batch_normalisation(name: str) -> None:
    one, two = run(2, normalized, name)
    assert one == two


def on_another_stream(rank: int) -> None:
    """The gradient of a rank is its number: a mean that is read too early is something else."""
    with torch.cuda.stream(torch.cuda.Stream()):
        ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False).to(DEVICE))
        sync = tw.compress(ddp, "topk", **everything("topk", 1.0))
        for _ in range(200):
            ddp.zero_grad()
            ddp(torch.tensor([float(rank)], device=DEVICE)).sum().backward()
            assert ddp.module.weight.grad.item() == 0.5
        sync.close()


@needs_gpu
def test_another_stream() -> None:
    run(2, on_another_stream)


def autocast(rank: int, view: bool) -> int:
    torch.manual_seed(1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
    ddp = DistributedDataParallel(models.Net().to(DEVICE), gradient_as_bucket_view=view)
    sync = tw.compress(ddp, "topk", scaler=scaler, **everything("topk", 0.1))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.03)
    for step in range(20):
        optimizer.zero_grad()
        with torch.autocast(DEVICE):
            loss = square(ddp(draw(ddp, rank, step)).float())
        scaler.scale(loss).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in ddp.parameters() if p.requires_grad)
        scaler.step(optimizer)
        scaler.update()
    sync.close()
    return checksum(list(ddp.parameters()))


@needs_gpu
def test_autocast() -> None:
    sums = [*run(2, autocast, False), *run(2, autocast, True)]
    assert len(set(sums)) == 1, sums


def _with_a_hook_of_its_own(kind: str) -> DistributedDataParallel:
    """DDP with a feature that takes the one place for a hook."""
    from torch.distributed.optim import _apply_optimizer_in_backward  # type: ignore[attr-defined]
    from torch.nn.parallel.distributed import _MixedPrecision

    if kind == "mixed precision":
        config = _MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16, buffer_dtype=torch.float16)
        return DistributedDataParallel(nn.Linear(2, 2).to(DEVICE), mixed_precision=config)
    ddp = DistributedDataParallel(nn.Linear(2, 2).to(DEVICE))
    _apply_optimizer_in_backward(torch.optim.SGD, ddp.parameters(), {"lr": 0.1})
    return ddp


def taken(rank: int, kind: str) -> str:
    try:
        ddp = _with_a_hook_of_its_own(kind)
        tw.compress(ddp)
        ddp(torch.ones(1, 2, device=DEVICE)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "nothing"


@needs_gpu
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("mixed precision", "made with mixed_precision"), ("optimizer in backward", "only be called once")],
    ids=["mixed_precision", "optimizer_in_backward"],
)
def test_features_of_ddp_that_take_the_place_of_the_hook(kind: str, expected: str) -> None:
    for said in run(2, taken, kind):
        assert expected in said, said
