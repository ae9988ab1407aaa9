"""thinwire.torch.AdamW: torch's own where everything is sent, a kept second moment where not."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from ranks import run
from small import batch, checksum, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw
from thinwire import BadArgument

#: Of 40 steps, 8 of them warm up.
WARMUP = {"warmup": "quantized/20%", "total_steps": 40}


class Source:
    """What a synchronizer tells an optimiser."""

    last_density = 1.0


def steps(optimizer: torch.optim.Optimizer, model: nn.Module, count: int, begin: int = 0) -> None:
    for step in range(begin, begin + count):
        x, y = batch(0, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


FORMS: "list[dict[str, Any]]" = [
    {},
    {"fused": True},
    {"foreach": True},
    {"foreach": False, "amsgrad": True},
    {"maximize": True, "weight_decay": 0.3, "betas": (0.8, 0.9)},
]


@pytest.mark.parametrize("settings", FORMS)
def test_it_is_torchs_where_everything_is_sent(settings: "dict[str, Any]") -> None:
    ours, theirs = mlp(), mlp()
    mine = tw.AdamW(ours.parameters(), 1e-2, **settings)
    steps(mine, ours, 5)
    other = torch.optim.AdamW(theirs.parameters(), 1e-2, **settings)
    steps(other, theirs, 5)
    assert checksum(ours) == checksum(theirs)
    # A state of torch's goes on here.
    mine.load_state_dict(copy.deepcopy(other.state_dict()))
    steps(mine, ours, 2, 5)
    steps(other, theirs, 2, 5)
    assert checksum(ours) == checksum(theirs)


@pytest.mark.parametrize("settings", FORMS)
def test_a_sparse_step_is_that_of_the_formula(settings: "dict[str, Any]") -> None:
    model, source = mlp(), Source()
    optimizer = tw.AdamW(model.parameters(), 1e-2, **settings)
    optimizer.attach(source)
    steps(optimizer, model, 5)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    source.last_density = 0.01
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimizer.step()
    group = optimizer.param_groups[0]
    beta1, beta2 = group["betas"]
    for number, parameter in enumerate(model.parameters()):
        square = before[number]["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
        root = (square / (1 - beta2**5)).sqrt()
        denominator = root + group["eps"] + 1e-3 * root.mean()
        sign = -1 if group["maximize"] else 1
        step = sign * 1e-2 * (1 - beta1) * 0.25 / denominator
        expected = weights[number] * (1 - 1e-2 * group["weight_decay"]) - step
        assert torch.allclose(parameter, expected, rtol=1e-5, atol=1e-7)
        state = optimizer.state[parameter]
        assert torch.equal(state["exp_avg_sq"], before[number]["exp_avg_sq"]) and "exp_avg" not in state
    # Full steps begin their first moment anew.
    source.last_density = 1.0
    steps(optimizer, model, 1)
    assert all("exp_avg" in state and "denominator" not in state for state in optimizer.state.values())


def trained(rank: int) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for method in ("topk", "ar-topk", "gaussian-k"):
        model = mlp()
        ddp = DistributedDataParallel(model)
        optimizer = tw.AdamW(ddp.parameters(), 3e-3)
        sync = tw.compress(ddp, method, density=0.05, optimizer=optimizer, check_replicas_every=10, **WARMUP)
        moments: "list[Any]" = []

        def look(step: int, optimizer: Any = optimizer, moments: "list[Any]" = moments) -> None:
            if step in (8, 39):
                moments.append([state["exp_avg_sq"].clone() for state in optimizer.state.values()])

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 80)
        losses = []
        for step in range(40):
            losses += train(rank, ddp, range(step, step + 1), optimizer, look)
            scheduler.step()
        kept = all(torch.equal(a, b) for a, b in zip(*moments))
        found[method] = (sync.method, checksum(model), sum(losses[:5]), sum(losses[-5:]), kept)
        sync.close()
    return found


def test_a_sparse_method_learns_and_replicas_stay_equal() -> None:
    results = run(2, trained)
    for method, (text, bits, first, last, kept) in results[0].items():
        assert text.startswith(f"{method}:density=0.05") and "masking=false" in text and "momentum=0.9" in text
        assert bits == results[1][method][1] and last < 0.8 * first, (method, first, last)
        assert kept, "the second moment changed after the warm-up"


def resumed(rank: int) -> "tuple[int, int]":
    def start() -> "tuple[Any, Any, Any]":
        ddp = DistributedDataParallel(mlp())
        optimizer = tw.AdamW(ddp.parameters(), 3e-3)
        return ddp, optimizer, tw.compress(ddp, "topk", density=0.05, optimizer=optimizer, **WARMUP)

    ddp, optimizer, sync = start()
    # DDP makes its buckets anew after the first step.
    train(rank, ddp, range(20), optimizer)
    saved = copy.deepcopy((ddp.state_dict(), optimizer.state_dict(), sync.state_dict()))
    train(rank, ddp, range(20, 30), optimizer)
    whole = checksum(ddp)
    sync.close()
    ddp, optimizer, sync = start()
    ddp.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    sync.load_state_dict(saved[2])
    train(rank, ddp, range(20, 30), optimizer)
    return whole, checksum(ddp)


def test_a_resumed_run_has_the_same_bits() -> None:
    for whole, parts in run(2, resumed):
        assert whole == parts


def scaled(rank: int) -> "tuple[bool, bool]":
    """A step with an infinity in the warm-up and one after it change nothing, with a fused optimiser too."""
    outcomes = []
    for fused in (False, True):
        ddp = DistributedDataParallel(mlp())
        optimizer = tw.AdamW(ddp.parameters(), 3e-3, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        sync = tw.compress(ddp, "topk", density=0.05, optimizer=optimizer, scaler=scaler, **WARMUP)
        well = True
        for step in range(16):
            x, y = batch(rank, step)
            before = checksum(ddp)
            optimizer.zero_grad()
            bad = step in (4, 12)
            loss = nn.functional.mse_loss(ddp(x), y) * (float("inf") if bad and rank == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            well &= (checksum(ddp) == before) == bad
        outcomes.append(well)
        sync.close()
    return outcomes[0], outcomes[1]


def test_a_scaler_skips_steps_with_infinities() -> None:
    assert run(2, scaled) == [(True, True)] * 2


def mistakes(rank: int) -> "dict[str, str]":
    found = {}

    def error(name: str, work: Any) -> None:
        try:
            work()
        except BadArgument as wrong:
            found[name] = str(wrong)

    def make(betas: "tuple[float, float]" = (0.9, 0.95)) -> "tuple[Any, tw.AdamW]":
        ddp = DistributedDataParallel(mlp())
        return ddp, tw.AdamW([{"params": ddp.parameters(), "betas": betas}])

    ddp, optimizer = make()
    error("total_steps", lambda: tw.compress(ddp, "topk", optimizer=optimizer))
    error("run_ahead", lambda: tw.compress(ddp, "topk", optimizer=optimizer, total_steps=9, run_ahead=True))
    error("whole", lambda: tw.compress(ddp, "topk", optimizer=optimizer, total_steps=9.5))  # type: ignore[arg-type]
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "betas": (0.8, 0.9)})
    error("betas", lambda: tw.compress(ddp, "topk", optimizer=optimizer, total_steps=9))
    ddp, optimizer = make()
    sync = tw.compress(ddp, "topk", warmup="none", optimizer=optimizer)
    error("no warm-up", lambda: train(rank, ddp, range(1), optimizer))
    sync.close()
    ddp, optimizer = make()
    sync = tw.compress(ddp, "topk")
    error("not given", lambda: train(rank, ddp, range(1), optimizer))
    sync.close()
    return found


def test_mistakes_are_named() -> None:
    words = {
        "total_steps": "total_steps",
        "run_ahead": "run_ahead",
        "whole": "total_steps is 9.5",
        "betas": "0.8, 0.9",
        "no warm-up": "no second moment",
        "not given": "optimizer=",
    }
    for found in run(2, mistakes):
        assert found.keys() == words.keys()
        for name, word in words.items():
            assert word in found[name], (name, found[name])


def everything_is_sent(rank: int) -> bool:
    """With a method that sends everything it is torch's AdamW, and no warm-up is needed."""
    bits = []
    for make in (tw.AdamW, torch.optim.AdamW):
        ddp = DistributedDataParallel(mlp())
        optimizer = make(ddp.parameters(), 3e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sync = tw.compress(ddp, "quantized", optimizer=optimizer)
            train(rank, ddp, range(10), optimizer)
        bits.append(checksum(ddp))
        sync.close()
    return bits[0] == bits[1]


def test_with_a_dense_method_it_is_torchs() -> None:
    assert run(2, everything_is_sent) == [True, True]
