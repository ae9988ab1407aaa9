"""What DDP accepts is accepted: gradients that are complex, 64-bit, sparse or empty, with DDP and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ranks import run
from small import everything
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


class Mixed(nn.Module):
    """A table, and a weight of some dtype beside one of 32 bits."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.dense = nn.Linear(6, 6)
        if kind in ("sparse", "sparse only"):
            self.table = nn.Embedding(20, 6, sparse=True)
        elif kind == "empty":
            self.nothing = nn.Linear(6, 0)
        else:
            self.factor = nn.Parameter(torch.randn(6, 5, dtype=getattr(torch, kind)))
        if kind == "sparse only":
            del self.dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "sparse only":
            return self.table(x[:, 0].abs().mul(9).long() % 20).sum(1, keepdim=True)
        out = self.dense(x)
        if self.kind == "sparse":
            return out + self.table(x[:, 0].abs().mul(9).long() % 20)
        if self.kind == "empty":
            return out.sum(1, keepdim=True) + self.nothing(out).sum()
        product = (out.to(self.factor.dtype) @ self.factor).abs()
        return product.float() if product.dtype != torch.float64 else product


KINDS = ["complex64", "complex128", "float64", "sparse", "sparse only", "empty"]


def _gradients(model: nn.Module) -> "dict[str, torch.Tensor]":
    return {name: p.grad.to_dense().clone() for name, p in model.named_parameters() if p.grad is not None}


def _mean(model: Mixed, inputs: "list[torch.Tensor]") -> "dict[str, torch.Tensor]":
    """The mean of the gradients for each of the inputs, computed here."""
    means: "dict[str, torch.Tensor]" = {}
    for x in inputs:
        alone = Mixed(model.kind)
        alone.load_state_dict(model.state_dict())
        alone(x).square().mean().backward()
        for name, gradient in _gradients(alone).items():
            means[name] = means.get(name, 0) + gradient / len(inputs)
    return means


def trained(rank: int, kind: str, loop: bool) -> "tuple[dict[str, float], dict[str, Any]]":
    """The largest difference to the mean by parameter, and the report."""
    model = Mixed(kind)
    settings = everything("topk", 1.0)
    wrapped: nn.Module = model
    if loop:
        sync: Any = tw.Synchronizer(model.named_parameters(), "topk", **settings)
    else:
        wrapped = ddp = DistributedDataParallel(model)
        sync = tw.compress(ddp, "topk", **settings)
    worst: "dict[str, float]" = {}
    for step in range(4):
        inputs = [torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * step + r)) for r in range(2)]
        wrapped.zero_grad()
        wrapped(inputs[rank]).square().mean().backward()
        if loop:
            sync.synchronize()
        expected, found = _mean(model, inputs), _gradients(model)
        assert expected.keys() == found.keys()
        for name, gradient in expected.items():
            difference = (gradient - found[name]).abs().max().item() if gradient.numel() else 0.0
            worst[name] = max(worst.get(name, 0.0), difference)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad.to_dense(), alpha=0.1)
    # A state goes round.
    sync.load_state_dict(sync.state_dict())
    report = sync.report().as_dict()
    report["text"] = str(sync.report())
    sync.close()
    return worst, report


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loop", [False, True], ids=["ddp", "loop"])
def test_any_gradient_is_averaged(kind: str, loop: bool) -> None:
    for worst, report in run(2, trained, kind, loop):
        assert all(difference < 1e-6 for difference in worst.values()), worst
        expected = {
            "complex128": {"factor": "complex128"},
            "float64": {"factor": "float64"},
            "sparse": {"table.weight": "sparse"},
            "sparse only": {"table.weight": "sparse"},
        }.get(kind, {})
        assert report["uncompressed"] == expected
        for name, reason in expected.items():
            assert f"{name} ({reason})" in report["text"]
        assert report["sent"] > 0 and report["steps"] == 4


def resumed(rank: int, method: str, kind: str, folder: Path) -> None:
    """A run with sparse gradients goes on from its states, which a fresh one takes before it has seen any gradient."""

    def start() -> "tuple[Any, Any]":
        model = Mixed(kind)
        named: "dict[str, Any]" = dict(model.named_parameters())
        return model, tw.Synchronizer(named.items(), method, **everything(method, 0.2))

    def steps(model: Any, sync: Any, numbers: range) -> None:
        for number in numbers:
            model.zero_grad()
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * number + rank))
            model(x).square().mean().backward()
            sync.synchronize()

    model, sync = start()
    steps(model, sync, range(3))
    state, kept = sync.state_dict(), sync.residual()
    dcp.save({"app": sync}, checkpoint_id=str(folder))
    steps(model, sync, range(3, 6))
    expected = [parameter.grad.to_dense() for parameter in model.parameters()]
    for how in ("state", "dcp", "blank", "twice"):
        model, sync = start()
        if how == "dcp":
            dcp.load({"app": sync}, checkpoint_id=str(folder))
        elif how == "blank":
            template = {"app": sync.blank_state_dict(2)}
            dcp.load(template, checkpoint_id=str(folder))
            sync.load_state_dict(template["app"])
        else:
            sync.load_state_dict(state)
            if how == "twice":
                state = sync.state_dict()
                model, sync = start()
                sync.load_state_dict(state)
        found = sync.residual()
        assert found.keys() == kept.keys(), how
        assert all(torch.equal(values, kept[name]) for name, values in found.items()), how
        steps(model, sync, range(3, 6))
        for parameter, gradient in zip(model.parameters(), expected):
            assert torch.equal(parameter.grad.to_dense(), gradient), how
        # Also into one that has trained.
        sync.load_state_dict(state)


@pytest.mark.parametrize(
    ("method", "kind"), [("topk", "sparse"), ("topk:momentum=0.9", "sparse"), ("topk", "sparse only")]
)
def test_a_loop_with_sparse_gradients_goes_on(method: str, kind: str, tmp_path: Path) -> None:
    run(2, resumed, method, kind, tmp_path)


def skipped(rank: int) -> "tuple[str, float]":
    """A NaN in a compressed gradient skips the step for the others too."""
    ddp = DistributedDataParallel(Mixed("float64"))
    tw.compress(ddp, "topk")
    x = torch.randn(8, 6)
    x[0, 0] = float("nan") if rank == 1 else 0.0
    try:
        ddp(x).square().mean().backward()
    except Exception as error:
        factor = ddp.module.factor.grad
        return type(error).__name__, 0.0 if factor is None else factor.abs().max().item()
    return "nothing", 0.0


def test_a_skipped_step_is_skipped_for_all_gradients() -> None:
    for kind, largest in run(2, skipped):
        assert (kind, largest) == ("StepSkipped", 0.0)


def sparse_rows(rank: int) -> int:
    """Each rank has rows of its own."""
    weight = nn.Parameter(torch.zeros(20, 6))
    sync = tw.Synchronizer([("table", weight)], "topk")
    weight.grad = torch.sparse_coo_tensor(torch.arange(10)[None] + 10 * rank, torch.ones(10, 6), (20, 6))
    sync.synchronize()
    assert weight.grad.coalesce().indices().numel() == 20
    sent = sync.report().sent
    sync.close()
    return sent


def test_what_is_sent_of_a_sparse_gradient_is_its_own() -> None:
    # An index of 64 bits, and 6 values of 32 bits, of each row.
    assert run(2, sparse_rows) == [10 * (8 + 6 * 4)] * 2


def by_samples(rank: int) -> float:
    torch.manual_seed(2)
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    sync = tw.Synchronizer([weight], "topk", mean="samples")
    sync.set_samples([1, 3][rank])
    weight.grad = torch.full((3,), float(rank), dtype=torch.float64)
    sync.synchronize()
    return float(weight.grad[0])


def test_samples_count_in_a_dense_mean() -> None:
    assert run(2, by_samples) == [0.75, 0.75]
