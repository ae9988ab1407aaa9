"""A case, with compression and without, side by side."""

from __future__ import annotations

import copy
import inspect
import zlib
from typing import Any

import torch
import torch.distributed as dist
from small import everything
from table import CASES, Case
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

ALL, SOME = "everything sent", "5 %"
MODES = {ALL: 1.0, SOME: 0.05}


def wrap(case: Case, module: nn.Module, **more: Any) -> DistributedDataParallel:
    if case.before is not None:
        case.before(module)
    ddp = DistributedDataParallel(module, **case.options, **more)
    if case.after is not None:
        case.after(ddp)
    return ddp


def supported(case: Case) -> bool:
    """Whether this version of DDP has the case's options."""
    return set(case.options) <= set(inspect.signature(DistributedDataParallel).parameters)


def checksum(tensors: "list[torch.Tensor]") -> int:
    """Of all bits."""
    total = 0
    for tensor in tensors:
        dense = tensor.detach().to_dense().cpu().contiguous()
        total = zlib.crc32(torch.view_as_real(dense).numpy().tobytes() if dense.is_complex() else _bytes(dense), total)
    return total


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def compared(rank: int, size: int, name: str, mode: str, device: str = "cpu") -> "list[int]":
    """The checksums of the gradients after each step. Fails where they are not what they should be."""
    case = CASES[name]
    torch.manual_seed(11)
    module = case.model().to(device)
    plain, ours = wrap(case, copy.deepcopy(module)), wrap(case, module)
    sync = tw.compress(ours, "topk", **everything("topk", MODES[mode]))
    books = Books(size, mode, case, sync)
    sums = []
    for step in range(case.steps):
        for model in (plain, ours):
            model.zero_grad(set_to_none=case.to_none)
            case.step(model, rank, step)
        sums.append(books.enter(step, plain.module, ours.module))
    books.close()
    sync.close()
    return sums


class Books:
    """The gradients of DDP, those that compression delivers, and what is kept."""

    def __init__(self, size: int, mode: str, case: Case, sync: Any) -> None:
        self.size, self.mode, self.case, self.sync = size, mode, case, sync
        self.expected: "dict[str, torch.Tensor]" = {}
        self.arrived: "dict[str, torch.Tensor]" = {}

    def enter(self, step: int, plain: nn.Module, ours: nn.Module) -> int:
        """Takes in a step's gradients; with everything sent they are compared, and the models trained on."""
        shared = []
        for (name, theirs), (_, mine) in zip(plain.named_parameters(), ours.named_parameters()):
            where = f"step {step}, {name}"
            assert (theirs.grad is None) == (mine.grad is None), f"{where}: {theirs.grad} became {mine.grad}"
            if theirs.grad is None or mine.grad is None:
                continue
            assert mine.grad.dtype == theirs.grad.dtype and mine.grad.layout == theirs.grad.layout, where
            dense, given = theirs.grad.detach().to_dense(), mine.grad.detach().to_dense()
            assert dense.stride() == given.stride(), f"{where}: {dense.stride()} became {given.stride()}"
            if self.mode == ALL or name in self.case.alone:
                close = {"rtol": self.case.close, "atol": self.case.close / 10}
                torch.testing.assert_close(given, dense, **close, msg=lambda text: f"{where}: {text}")
            self.expected[name] = self.expected.get(name, 0) + _wide(dense)
            self.arrived[name] = self.arrived.get(name, 0) + _wide(given)
            if name not in self.case.alone:
                shared.append(mine.grad)
            if self.mode == ALL:
                with torch.no_grad():
                    theirs.sub_(dense, alpha=0.02)
                    mine.sub_(given, alpha=0.02)
        return checksum(shared)

    def close(self) -> None:
        """What DDP would have delivered was delivered, or is kept."""
        residual = self.sync.residual()
        held = 0.0
        for name, expected in self.expected.items():
            kept = torch.zeros_like(expected)
            if name in residual:
                real = torch.view_as_real(kept) if kept.is_complex() else kept
                real += residual[name].to(real.device)
                dist.all_reduce(real)
                kept /= self.size
            held += float(kept.abs().sum())
            if expected.numel():
                close = max(1e-5, self.case.close) * max(1.0, float(expected.abs().max()))
                total = self.arrived[name] + kept
                torch.testing.assert_close(total, expected, rtol=0, atol=close, msg=lambda text: f"{name}: {text}")
        if self.case.compresses:
            assert (held > 0) == (self.mode == SOME), f"{held} is kept"
        steps, report = self.case.steps, self.sync.report()
        assert report.skipped == 0 and (report.steps == steps or not self.case.compresses), report


def _wide(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to(torch.complex128 if gradient.is_complex() else torch.float64)
