"""The default method: quantised, and dense where that is faster."""

from __future__ import annotations

import json
import struct
from typing import Any

import torch
from ranks import run
from small import batch, checksum, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw
from thinwire import BadArgument
from thinwire.torch import _trial
from thinwire.torch._trial import DENSE, QUANTIZED, Trial

#: Steps in which DDP may still change its buckets, and those until both ways have been timed and the residual was sent.
SETTLING = 4
TRIAL = SETTLING + 2 * _trial.STEPS + 1


class Group:
    """What two ranks have gathered."""

    def __init__(self, other: "tuple[float, float]") -> None:
        self.other = other

    def gather(self, mine: bytes) -> "list[bytes]":
        return [mine, struct.pack("<2d", *self.other)]


def test_the_fastest_step_of_each_way_counts_on_its_slowest_rank() -> None:
    for other, expected in [((1.0, 1.0), DENSE), ((1.0, 5.0), QUANTIZED), ((9.0, 5.0), DENSE)]:
        trial, times = Trial(), {QUANTIZED: [7.0, 3.0, 4.0], DENSE: [2.0, 8.0, 9.0]}
        for _ in range(2 * _trial.STEPS):
            assert not trial.complete
            trial.record(times[trial.way].pop(0))
        assert trial.complete
        decision = trial.decide(Group(other), 8)  # type: ignore[arg-type]
        assert decision["way"] == trial.way == expected and trial.over and not trial.complete
        assert trial.flushes == (expected == DENSE)
        json.dumps(decision)


def _as_if(faster: str) -> Any:
    """Steps take as long as if this way were the faster one."""
    record = Trial.record
    Trial.record = lambda self, _: record(self, 1.0 if self.way == faster else 2.0)  # type: ignore[method-assign]
    return record


def sums(rank: int, faster: str, **options: Any) -> "dict[str, Any]":
    """The sum of all means against DDP's, of a model that does not move."""
    record = _as_if(faster)
    try:
        found: "dict[str, Any]" = {}
        totals = []
        for compressed in (True, False):
            ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002, **options)
            sync = tw.compress(ddp) if compressed else None
            total = [torch.zeros_like(parameter) for parameter in ddp.parameters()]
            for step in range(TRIAL + 4):
                x, y = batch(rank, step)
                ddp.zero_grad()
                nn.functional.mse_loss(ddp(x), y).backward()
                for sum_, parameter in zip(total, ddp.parameters()):
                    sum_ += parameter.grad
            totals.append(torch.cat([each.flatten() for each in total]))
            if sync is not None:
                found["report"], found["kept"] = sync.report(), max(r.abs().max() for r in sync.residual().values())
                found["text"] = str(found["report"])
                sync.close()
        found["error"] = float((totals[0] - totals[1]).norm() / totals[1].norm())
        return found
    finally:
        Trial.record = record  # type: ignore[method-assign]


def test_dense_steps_take_over_and_nothing_is_lost() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        for found in run(2, _sums_of, DENSE, options):
            report = found["report"]
            assert report.decisions[-1]["way"] == DENSE and "quantising does not pay" in found["text"]
            assert report.steps == TRIAL + 4 and found["kept"] == 0
            assert found["error"] < 1e-5, found["error"]
            # Three steps of the trial and at least four after it were dense, and one has sent the residual in full.
            assert 1 < report.ratio < 2


def _sums_of(rank: int, faster: str, options: "dict[str, Any]") -> "dict[str, Any]":
    return sums(rank, faster, **options)


def test_quantising_goes_on_where_it_is_faster() -> None:
    for found in run(2, _sums_of, QUANTIZED, {}):
        assert found["report"].decisions[-1]["way"] == QUANTIZED and "quantises" in found["text"]
        assert found["kept"] > 0 and found["report"].steps == TRIAL + 4


def trained(rank: int, faster: str) -> "tuple[int, float, float, str]":
    record = _as_if(faster)
    try:
        ddp = DistributedDataParallel(mlp())
        sync = tw.compress(ddp)
        losses = train(rank, ddp, range(60))
        saved = sync.state_dict()
        # A state may hold something: dense steps wait until that is sent.
        sync.load_state_dict(saved)
        losses += train(rank, ddp, range(60, 80))
        sync.close()
        return checksum(ddp), sum(losses[:5]), sum(losses[-5:]), sync.method
    finally:
        Trial.record = record  # type: ignore[method-assign]


def test_replicas_stay_equal_either_way() -> None:
    for faster in (DENSE, QUANTIZED):
        results = run(2, trained, faster)
        assert results[0][0] == results[1][0]
        for _, first, last, method in results:
            assert method == "quantized" and last < 0.7 * first


def skipped(rank: int) -> "tuple[int, float]":
    """An infinity in the step that is to send the residual."""
    record = _as_if(DENSE)
    try:
        ddp = DistributedDataParallel(mlp())
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        sync = tw.compress(ddp, scaler=scaler)
        harmed = False
        for step in range(TRIAL + 3):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            harms = not harmed and sync._trial is not None and sync._trial.flushes
            harmed |= harms
            factor = float("inf") if harms and rank == 1 else 1.0
            scaler.scale(nn.functional.mse_loss(ddp(x), y) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        report, kept = sync.report(), max(float(r.abs().max()) for r in sync.residual().values())
        sync.close()
        return report.skipped, kept
    finally:
        Trial.record = record  # type: ignore[method-assign]


def test_a_residual_whose_step_was_skipped_is_sent_with_the_next() -> None:
    assert run(2, skipped) == [(1, 0.0)] * 2


def without(rank: int) -> "list[int]":
    """A method that was named, and models whose means the engine must see, are never tried dense."""
    counts = []
    for settings, options in [
        ({"method": "quantized"}, {}),
        ({}, {"find_unused_parameters": True}),
        ({"mean": "samples"}, {}),
    ]:
        ddp = DistributedDataParallel(mlp(), **options)
        sync = tw.compress(ddp, **settings)  # type: ignore[arg-type]
        train(rank, ddp, range(TRIAL + 2))
        counts.append(len(sync.report().decisions))
        sync.close()
    return counts


def test_no_trial_where_it_can_not_be() -> None:
    assert run(2, without) == [[0, 0, 0]] * 2


def mistaken(rank: int) -> str:
    try:
        tw.compress(DistributedDataParallel(mlp()), density=0.01)
    except BadArgument as error:
        return str(error)
    return ""


def test_a_density_needs_a_method() -> None:
    for found in run(2, mistaken):
        assert "density is 0.01" in found and "method='topk'" in found
