"""Momentum twice, warm-up, reports and memory."""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
from ranks import run
from small import everything, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


def warned(rank: int, cases: "dict[str, Any]", words: str) -> "dict[str, list[str]]":
    """The warnings with these words, of a training for each method, optimiser, and whether the hook is given it."""
    found = {}
    for name, (method, make, given) in cases.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ddp = DistributedDataParallel(mlp())
            optimizer = make(ddp.parameters())
            sync = tw.compress(ddp, method, optimizer=optimizer if given else None, steps_per_epoch=1)
            train(rank, ddp, range(3), optimizer)
            # Another one, on other parameters, is none of its business.
            other = nn.Linear(2, 2)
            other(torch.ones(2)).sum().backward()
            torch.optim.SGD(other.parameters(), 0.1, momentum=0.9).step()
        found[name] = [str(warning.message) for warning in caught if words in str(warning.message)]
        sync.close()
    return found


def momentum(rank: int) -> "dict[str, list[str]]":
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    cases: "dict[str, Any]" = {
        "sgd": ("dgc:momentum=0.9", lambda p: sgd(p, 0.1, momentum=0.9), False),
        "adam": ("topk:momentum=0.9", lambda p: adam(p, 0.1), False),
        "told": ("dgc:momentum=0.9", lambda p: sgd(p, 0.1, momentum=0.9), True),
        "plain sgd": ("dgc:momentum=0.9", lambda p: sgd(p, 0.1), False),
        "plain method": ("topk", lambda p: sgd(p, 0.1, momentum=0.9), False),
    }
    return warned(rank, cases, "twice")


def test_momentum_in_method_and_optimiser_is_explained_once() -> None:
    for found in run(2, momentum):
        for name in ("sgd", "adam", "told"):
            assert len(found[name]) == 1 and "twice" in found[name][0], (name, found[name])
        assert "Adam" in found["adam"][0] and "betas" in found["adam"][0]
        assert found["plain sgd"] == found["plain method"] == []


def second_moment(rank: int) -> "dict[str, list[str]]":
    adamw, adam, sgd = torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD
    cases: "dict[str, Any]" = {
        "topk": ("topk", lambda p: adamw(p, 1e-3), False),
        "told": ("redsync", lambda p: adam(p, 1e-3), True),
        "auto": ("auto", lambda p: adamw(p, 1e-3), False),
        "auto told": ("auto", lambda p: adamw(p, 1e-3), True),
        "auto named": ("auto:methods=dense|topk", lambda p: adamw(p, 1e-3), False),
        "auto full": ("auto:methods=dense|quantized", lambda p: adamw(p, 1e-3), False),
        "quantized": ("quantized", lambda p: adamw(p, 1e-3), False),
        "everything": ("topk:density=1", lambda p: adamw(p, 1e-3), False),
        "sgd": ("topk", lambda p: sgd(p, 0.1, momentum=0.9), False),
    }
    return warned(rank, cases, "second moment")


def test_a_sparse_method_under_adam_is_warned_of_once() -> None:
    for found in run(2, second_moment):
        for name in ("topk", "told", "auto named"):
            assert len(found[name]) == 1 and "'quantized'" in found[name][0], (name, found[name])
        for name in ("quantized", "everything", "sgd", "auto", "auto told", "auto full"):
            assert found[name] == [], name


def warm_up(rank: int) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for name, settings in {"untold": {}, "counted": {"steps_per_epoch": 2}, "said": {}}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ddp = DistributedDataParallel(mlp())
            sync = tw.compress(ddp, "topk:warmup=dgc", **everything("topk", 0.01), **settings)
            asked = []
            for step in range(10):
                if name == "said":
                    sync.set_epoch(step // 2)
                train(rank, ddp, range(step, step + 1))
                asked.append(sync.report().asked)
        found[name] = (asked, sum("steps_per_epoch" in str(warning.message) for warning in caught))
    return found


def test_density_warms_up_by_epochs() -> None:
    for found in run(2, warm_up):
        assert found["untold"][1] == 1 and found["counted"][1] == found["said"][1] == 0
        assert len(set(found["untold"][0])) == 1
        for asked in (found["counted"][0], found["said"][0]):
            assert asked[0] == found["untold"][0][0] and asked[-1] < asked[0] / 5, asked
            assert asked == sorted(asked, reverse=True)


def reported(rank: int) -> "dict[str, Any]":
    model = nn.Sequential(nn.Linear(8, 4000, bias=False), nn.Linear(4000, 4, bias=False))
    ddp = DistributedDataParallel(model)
    sync = tw.compress(ddp, "topk", **everything("topk", 0.01))
    before = sync.report()
    assert before.steps == 0 and "no step yet" in str(before)
    train(rank, ddp, range(5))
    report = sync.report()
    assert before.steps == 0, "a report does not change after it was given"
    json.dumps(report.as_dict())
    for word in ("topk", "2 ranks", "5 steps", "480 of 48,000", "1 %", "x less", "select"):
        assert word in str(report), str(report)
    return report.as_dict()


def test_the_figures_of_a_report() -> None:
    for report in run(2, reported):
        assert (report["steps"], report["ranks"], report["skipped"]) == (5, 2, 0)
        assert report["elements"] == 48_000 and report["dense_elements"] == 0
        assert report["asked"] == report["kept"] == 480
        # A dense ring on two ranks sends the gradient once.
        assert report["dense"] == 5 * 4 * 48_000
        # Five steps of 480 values with their places, and envelopes.
        assert 5 * 480 * 4 < report["sent"] < 5 * (480 * 8 + 500), report["sent"]
        assert report["sent"] == report["received"]
        assert report["ratio"] == report["dense"] / report["sent"] > 40
        assert 0 < report["gain"] < 1
        assert report["residual_bytes"] == 4 * 48_000
        assert all(seconds >= 0 for seconds in report["seconds"].values()) and report["seconds"]["select"] > 0


def memory(rank: int, method: str) -> "tuple[int, int]":
    model = nn.Sequential(nn.Linear(2236, 2236, bias=False))
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    sync = tw.compress(ddp, method, density=0.001)
    for step in range(4):
        torch.manual_seed(10 * step + rank)
        model.zero_grad()
        ddp(torch.randn(2, 2236)).square().mean().backward()
    report = sync.report()
    return report.residual_bytes, report.workspace_bytes


def test_work_space_is_small_against_the_residual() -> None:
    for method in ("redsync", "gaussian-k"):
        for residual, work_space in run(2, memory, method):
            assert residual == 4 * 2236 * 2236
            assert work_space < residual / 10, f"{method}: {work_space} bytes of work space"


def defaults(rank: int) -> "dict[str, Any]":
    made = {}
    for name, arguments in {"none": (), "redsync": ("redsync",), "own": ("redsync:density=0.002",)}.items():
        sync = tw.compress(DistributedDataParallel(mlp()), *arguments)
        made[name] = sync.method
        sync.close()
    group = tw.Synchronizer(mlp().named_parameters(), "topk")._engine.connect()
    return {**made, "timeout": group.timeout.total_seconds()}


def test_one_default_density_and_a_deadline_of_its_own() -> None:
    for found in run(2, defaults):
        assert found["none"] == "quantized" and found["redsync"] == "redsync:density=0.01"
        assert found["own"] == "redsync:density=0.002"
        # The ranks of these tests met with a timeout of 60 s, which is shorter than two minutes.
        assert found["timeout"] == 60


def since(rank: int) -> "tuple[int, int, int]":
    ddp = DistributedDataParallel(mlp())
    sync = tw.compress(ddp, "topk", **everything("topk"))
    train(rank, ddp, range(5))
    first = sync.report(reset=True).steps
    train(rank, ddp, range(5, 7))
    return first, sync.report().steps, sync.report().steps


def test_reports_since_the_last_one() -> None:
    assert run(2, since) == [(5, 2, 2)] * 2
