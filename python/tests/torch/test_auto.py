"""The method that chooses: all ranks together, and with reasons."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ranks import run
from small import checksum, mlp, train
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw
from thinwire.torch._options import Options, method_with_defaults


def chooses(rank: int) -> "tuple[int, float, float, list[dict[str, object]], str]":
    model = mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
    sync = tw.compress(ddp, "auto", check_replicas_every=10)
    losses = train(rank, ddp, range(60))
    sync.load_state_dict(sync.state_dict())
    losses += train(rank, ddp, range(60, 80))
    report = sync.report()
    with pytest.raises(thinwire.Error, match="auto chooses it"):
        sync.set_density(0.1)
    sync.close()
    return checksum(model), sum(losses[:5]), sum(losses[-5:]), report.decisions, str(report)


def test_ranks_choose_together_and_rank_0_says_why() -> None:
    results = run(3, chooses)
    assert len({bits for bits, *_ in results}) == 1, "replicas differ"
    _, first, last, decisions, text = results[0]
    assert last < 0.9 * first
    assert decisions[0]["reason"] == "start"
    assert {"network", "ways", "density", "gain", "seconds", "dense_seconds", "second", "saves"} <= set(decisions[0])
    assert str(decisions[-1]["text"]) in text
    assert all(not others for *_, others, _ in results[1:])


def test_a_density_is_not_for_it() -> None:
    with pytest.raises(thinwire.BadArgument, match="max_density"):
        thinwire.method_text("auto", density=0.01)
    assert thinwire.method_text("auto", min_density=0.01, methods=["dense", "topk"]) == (
        "auto:methods=dense|topk,min_density=0.01"
    )


FULL = {"dense", "dense:values=bf16", "quantized:bits=8", "quantized"}


def candidates(optimizer: Any, method: str = "auto", **parameters: Any) -> "set[str]":
    """What ``compress`` lets ``auto`` choose from, with this optimiser."""
    text = method_with_defaults(method, None, parameters, Options(optimizer=optimizer))
    default = thinwire.methods()["auto"].parameters["methods"].default
    return set(dict(entry.split("=", 1) for entry in text[5:].split(",") if entry).get("methods", default).split("|"))


def test_it_selects_only_for_sgd() -> None:
    p = list(mlp().parameters())

    class Unknown(torch.optim.Optimizer):
        pass

    class MySGD(torch.optim.SGD):
        pass

    for optimizer in (
        None,
        torch.optim.Adam(p),
        torch.optim.AdamW(p),
        torch.optim.RMSprop(p),
        torch.optim.Adagrad(p),
        tw.AdamW(p),
        Unknown(p, {}),
    ):
        assert candidates(optimizer) == FULL, optimizer
        assert candidates(optimizer, min_density=0.01) == FULL, optimizer
    for sgd in (torch.optim.SGD(p, 0.1), MySGD(p, 0.1, momentum=0.9)):
        assert candidates(sgd) == candidates(sgd, "auto:min_density=0.01") == FULL | {"topk", "ar-topk"}
        assert candidates(sgd, "auto:methods=dense|fft") == {"dense", "fft"}
        assert candidates(sgd, methods=["dense", "fft"]) == {"dense", "fft"}
        assert candidates(sgd, methods=sorted(FULL)) == FULL


def test_its_sparse_candidates_do_not_go_with_our_adamw() -> None:
    with pytest.raises(thinwire.BadArgument, match="by its name"):
        candidates(tw.AdamW(mlp().parameters()), "auto:methods=dense|topk")


def chooses_for_adamw(rank: int) -> "tuple[int, set[str], bool]":
    model = mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
    optimizer = tw.AdamW(model.parameters(), 1e-3)
    sync = tw.compress(ddp, "auto", optimizer=optimizer, check_replicas_every=1)
    full = True
    for step in range(30):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * rank + step))
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
        full &= sync.last_density == 1.0
    report = sync.report()
    chosen = {str(way).split(", ")[0] for decision in report.decisions for way, _ in decision["ways"]}
    sync.close()
    return checksum(model), chosen, full


def test_under_adamw_every_step_sends_everything() -> None:
    results = run(2, chooses_for_adamw)
    assert len({bits for bits, *_ in results}) == 1, "replicas differ"
    assert all(full for *_, full in results)
    assert results[0][1] and results[0][1] <= FULL
