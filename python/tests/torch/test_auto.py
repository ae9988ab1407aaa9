"""The method that chooses: all ranks together, and with reasons."""

from __future__ import annotations

import pytest
from ranks import run
from small import checksum, mlp, train
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw


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
