"""Running ahead, as far as it goes without a GPU: settings, and the order in which outcomes are told.

``Later`` stands for an engine on a GPU: what a step has come to is known to it, and told when somebody asks.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from ranks import run
from small import checksum, everything, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw
from thinwire.torch import _engine

ON = {"run_ahead": True}


def settings(rank: int) -> "list[str]":
    said = []
    scaler = torch.amp.GradScaler("cpu")
    switched_off = torch.amp.GradScaler("cpu", enabled=False)
    unlike = {"run_ahead": True if rank == 1 else "forward"}
    for given in ({"run_ahead": True, "scaler": scaler}, {"run_ahead": rank == 1}, unlike, {"run_ahead": "far"}):
        try:
            tw.compress(DistributedDataParallel(mlp()), "topk", **given).close()
            said.append("nothing")
        except (thinwire.BadArgument, thinwire.RanksDisagree) as error:
            said.append(str(error))
    tw.compress(DistributedDataParallel(mlp()), "topk", scaler=switched_off, run_ahead=True).close()
    return said


def test_what_does_not_go_together_is_refused() -> None:
    for with_scaler, unlike, how_far, unknown in run(2, settings):
        assert "run_ahead is 'far'; expected False, True or 'forward'" in unknown
        assert "run_ahead is" in how_far and "True" in how_far and "forward" in how_far, how_far
        assert "run_ahead is True, and a scaler is given" in with_scaler
        assert "run_ahead is" in unlike and "True" in unlike and "False" in unlike, unlike


def weights(rank: int, method: str, given: "dict[str, Any]", ahead: bool = False) -> "tuple[int, Any, Any]":
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002)
    sync = tw.compress(ddp, method, check_replicas_every=3, **everything(method), **given)
    train(rank, ddp, range(8))
    report, kept = sync.report(), sync.residual()
    sync.close()
    return checksum(ddp), (report.steps, report.sent, report.kept), kept


def on_the_cpu(rank: int, method: str) -> bool:
    found, expected = weights(rank, method, ON), weights(rank, method, {})
    with_later = later(lambda: weights(rank, method, ON))
    return all(each[:2] == expected[:2] and same(each[2], expected[2]) for each in (found, with_later))


def same(found: "dict[str, torch.Tensor]", expected: "dict[str, torch.Tensor]") -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_the_results_are_the_same() -> None:
    for method in ("topk", "redsync", "ar-topk", "dense"):
        assert run(2, on_the_cpu, method) == [True, True], method


class Later:
    """A native engine whose steps end on their own."""

    def __init__(self, *arguments: Any, run_ahead: bool, **settings: Any) -> None:
        assert run_ahead
        self.native, self.submitted, self.outcome = NATIVE(*arguments, **settings), [], None  # type: ignore[var-annotated]

    def submit(self, place: int, gradient: Any, weights: Any) -> None:
        assert self.outcome is None, "the step before was not asked for"
        self.submitted.append(gradient[0])
        self.native.submit(place, gradient, weights)

    def finish_on(self, stream: int) -> None:
        assert stream == 7
        try:
            self.outcome = self.native.wait()
        except thinwire.Error as error:
            self.outcome = error
            for gradient in self.submitted:
                gradient.zero_()

    def wait(self) -> Any:
        outcome, self.outcome, self.submitted = self.outcome, None, []
        if isinstance(outcome, Exception):
            raise outcome
        return self.native.wait() if outcome is None else outcome

    def __getattr__(self, name: str) -> Any:
        assert name.endswith("_bytes") or self.outcome is None, f"{name} in the midst of a step"
        return getattr(self.native, name)


NATIVE = _engine._native.Synchronizer


def later(act: "Callable[[], Any]") -> Any:
    """What it does with such an engine."""
    stream = tw.HookState._waiting_stream
    _engine._native.Synchronizer = Later  # type: ignore[misc,assignment]
    tw.HookState._waiting_stream = lambda self: 7 if self._submitted else None  # type: ignore[method-assign]
    try:
        return act()
    finally:
        _engine._native.Synchronizer = NATIVE  # type: ignore[misc]
        tw.HookState._waiting_stream = stream  # type: ignore[method-assign]


def poisoned(rank: int, ask: bool) -> "tuple[list[str], Any, int, str]":
    """What is said in each pass, where the fifth has a NaN on one rank, and one rank asks for a report after it."""
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002)
    sync, said, zeros = tw.compress(ddp, "topk", **everything("topk"), **ON), [], []
    for number in range(9):
        x = torch.full((2, 8), 1.0 + rank + number)
        if number in (5, 8) and rank == 1:
            x[0, 0] = float("nan")
        try:
            ddp(x).square().mean().backward()
            said.append("")
        except thinwire.StepSkipped as error:
            said.append(str(error))
        zeros.append(not any(parameter.grad.any() for parameter in ddp.parameters()))
        if ask and rank == 0:
            sync.report()
        with torch.no_grad():
            for parameter in ddp.parameters():
                parameter.sub_(0.01 * parameter.grad)
                parameter.grad = None
    assert sync.state_dict()["step"] == 9
    report, last = sync.report(), ""
    try:
        sync.close()
    except thinwire.StepSkipped as error:
        last = str(error)
    assert zeros == [number in (5, 8) for number in range(9)], zeros
    return said, (report.steps, report.skipped), checksum(ddp), last


def poisoned_later(rank: int, ask: bool) -> Any:
    return later(lambda: poisoned(rank, ask))


def test_a_skipped_step_is_told_of_one_step_late_by_all_ranks() -> None:
    for ask in (False, True):
        first, second = run(2, poisoned_later, ask)
        assert first == second
        said, counted, _, last = first
        assert [bool(words) for words in said] == [number == 6 for number in range(9)], said
        assert "step 5 was skipped" in said[6] and "one step late" in said[6], said[6]
        assert "step 8 was skipped" in last
        assert counted == (7, 2)


def waits(rank: int, run_ahead: Any) -> "list[tuple[bool, bool]]":
    """Whether a step is open after each backward pass, and after the optimiser's step."""
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.002)
    sync = tw.compress(ddp, "topk", **everything("topk"), run_ahead=run_ahead)
    optimizer, seen = torch.optim.SGD(ddp.parameters(), 0.01), []
    for number in range(5):
        ddp(torch.full((2, 8), 1.0 + rank + number)).square().mean().backward()
        before = sync._open
        optimizer.step()
        seen.append((before, sync._open))
    sync.wait()
    assert not sync._open and sync.report().steps == 5
    sync.close()
    return seen


def waits_later(rank: int, run_ahead: Any) -> Any:
    return later(lambda: waits(rank, run_ahead))


def test_the_host_waits_at_the_end_of_the_optimizers_step_unless_it_may_go_further() -> None:
    for run_ahead in (True, "forward"):
        for seen in run(2, waits_later, run_ahead):
            # The first steps have other buckets.
            assert seen[-1] == (True, run_ahead == "forward"), (run_ahead, seen)
    assert run(2, waits, True) == [[(False, False)] * 5] * 2


def loop(rank: int) -> "list[str]":
    model = nn.Linear(8, 4)
    with torch.no_grad():
        model.weight.fill_(0.5)
    sync = tw.Synchronizer(model.named_parameters(), "dense", run_ahead=True)
    said = []
    for number in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float("nan") if (number, rank) == (1, 1) else rank + 1.0)
        try:
            sync.synchronize()
            said.append("")
        except thinwire.StepSkipped as error:
            said.append(str(error))
    assert torch.equal(model.weight.grad, torch.full_like(model.weight, 1.5))
    return said


def test_a_loop_on_the_cpu_hears_of_it_at_once() -> None:
    for said in run(2, loop):
        assert [bool(words) for words in said] == [False, True, False] and "late" not in said[1]
