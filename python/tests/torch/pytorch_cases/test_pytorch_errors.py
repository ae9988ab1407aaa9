"""What PyTorch's tests ask of errors: DDP's own reach the user in its words, and training can be begun anew."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any, Callable

import models
import pytest
import torch
import torch.distributed as dist
from compared import checksum
from ranks import harm, run
from small import everything, step_timeout
from table import draw, square
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


def compressed(module: nn.Module, density: float = 1.0, **options: Any) -> "tuple[Any, tw.HookState]":
    ddp = DistributedDataParallel(module, **options)
    return ddp, tw.compress(ddp, "topk", **everything("topk", density))


def said(work: "Callable[[], Any]") -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _branches(used: "list[tuple[int, ...]]") -> "Callable[[Any, int], str]":
    """Steps with these layers, the last of which fails."""

    def steps(ddp: Any, rank: int) -> str:
        for step, layers in enumerate(used[:-1]):
            square(ddp(draw(ddp, rank, step), layers)).backward()
        return said(lambda: square(ddp(draw(ddp, rank, 9), used[-1])).backward())

    return steps


def _plain(ddp: Any, rank: int) -> str:
    return said(lambda: square(ddp(draw(ddp, rank, 0))).backward())


def _static_too_late(ddp: Any, rank: int) -> str:
    square(ddp(draw(ddp, rank, 0))).backward()
    return said(ddp._set_static_graph)


def _reentrant(times: int) -> "Callable[[], nn.Module]":
    return lambda: models.Checkpointed(times, reentrant=True)


#: The model, what DDP is told, what is done, and words of DDP's error.
ERRORS: "dict[str, tuple[Any, dict[str, Any], Callable[[Any, int], str], tuple[str, ...]]]" = {
    "unused, not told": (
        models.Branches,
        {},
        _branches([(0,), (0,)]),
        ("Expected to have finished reduction", "find_unused_parameters=True", "did not receive grad for rank", " 2"),
    ),
    "unused on odd steps, not told": (
        models.Branches,
        {},
        _branches([(0, 1), (0,), (0, 1)]),
        ("Expected to have finished reduction", "did not receive grad for rank"),
    ),
    "unused and ignored": (
        models.Branches,
        {"ignored": ["layers.0.weight"]},
        _branches([(0,), (0,)]),
        ("Expected to have finished reduction", "did not receive grad for rank", ": 1"),
    ),
    "a static graph that grows": (
        models.Branches,
        {"static_graph": True},
        _branches([(0,), (0, 1)]),
        ("Your training graph has changed in this iteration",),
    ),
    "a static graph that shrinks": (
        models.Branches,
        {"static_graph": True},
        _branches([(0, 1), (0,), (0, 1)]),
        ("Expected to have finished reduction", "not compatible with static_graph"),
    ),
    "a static graph, said too late": (
        models.Net,
        {},
        _static_too_late,
        ("should be called before training loop starts",),
    ),
    "recomputed twice": (_reentrant(2), {}, _plain, ("mark a variable ready only once",)),
    "recomputed twice, unused": (
        _reentrant(2),
        {"find_unused_parameters": True},
        _plain,
        ("mark a variable ready only once",),
    ),
    "recomputed, unused": (
        _reentrant(1),
        {"find_unused_parameters": True},
        _plain,
        ("mark a variable ready only once",),
    ),
}


def failing(rank: int, name: str) -> "tuple[str, int]":
    """The error, and the gradients of a model that is made anew out of the parameters of the one that failed."""
    build, options, work, _ = ERRORS[name]
    module = build()
    options = dict(options)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, options.pop("ignored", []))
    ddp, sync = compressed(module, **options)
    text = work(ddp, rank)
    sync.close()
    other = models.Net()
    plain = DistributedDataParallel(copy.deepcopy(other))
    again, sync = compressed(other)
    for one in (plain, again):
        for step in range(2):
            one.zero_grad()
            square(one(draw(one, rank, step))).backward()
    for theirs, mine in zip(plain.parameters(), again.parameters()):
        if theirs.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad)
    sync.close()
    return text, checksum([p.grad for p in again.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors_of_ddp(name: str) -> None:
    (first, one), (second, two) = run(2, failing, name)
    for text in (first, second):
        assert text.startswith("RuntimeError"), text
        for words in ERRORS[name][3]:
            assert words in text, text
    assert one == two


class Interrupted(torch.autograd.Function):
    """A backward pass that fails."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("by design")


class MayFail(nn.Module):
    def __init__(self, failing: bool) -> None:
        super().__init__()
        self.failing = failing
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.second(Interrupted.apply(x) if self.failing else x)


def wrapped_anew(rank: int, buckets: float) -> int:
    """After a backward pass that failed on all ranks the model is wrapped again."""
    module = MayFail(True)
    ddp, sync = compressed(module, 0.2, bucket_cap_mb=buckets)
    x = draw(ddp, rank, 0).requires_grad_()
    assert "by design" in said(lambda: square(ddp(x)).backward())
    ddp._remove_autograd_hooks()
    sync.close()
    module.failing = False
    module.zero_grad()
    again, sync = compressed(module, 0.2, bucket_cap_mb=buckets)
    for step in range(3):
        square(again(draw(again, rank, step))).backward()
    assert sync.report().steps == 3
    sync.close()
    return checksum([p.grad for p in module.parameters()])  # type: ignore[misc]


@pytest.mark.parametrize("buckets", [25, 0.0002], ids=["one bucket", "several buckets"])
def test_a_model_is_wrapped_anew_after_an_error(buckets: float) -> None:
    one, two = run(2, wrapped_anew, buckets)
    assert one == two


class Hidden:
    """What DDP does not look into."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class HidesOne(nn.Module):
    """One of two outputs is hidden from DDP on rank 0, which then waits for its gradient."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        second = self.second(x)
        return self.first(x), second if self.rank else Hidden(second)


def unfinished(rank: int) -> str:
    """Rank 0 uses less of its outputs than DDP saw and never comes to the end of its pass."""
    ddp = DistributedDataParallel(HidesOne(rank))
    with step_timeout(3):
        tw.compress(ddp, "topk", **everything("topk", 1.0))

    def step() -> None:
        first, second = ddp(draw(ddp, rank, 0))
        square(first if rank == 0 else first + second).backward()
        if rank == 0:
            ddp(draw(ddp, rank, 0))

    return said(step)


def test_a_rank_that_does_not_finish_its_pass() -> None:
    first, second = harm(2, unfinished)
    assert "Expected to have finished reduction" in first, first
    assert "GroupLost" in second and "rank 0" in second, second


def other_groups(rank: int) -> "list[int]":
    """Fewer ranks, and then all of them again: model and compression are made anew with a process group."""
    torch.manual_seed(1)
    module = models.Net()
    ddp, sync = compressed(module, 0.2)
    square(ddp(draw(ddp, rank, 0))).backward()
    sync.close()
    sums, groups = [], [(ranks, dist.new_group(ranks)) for ranks in ([0], [1], [0, 1])]
    for ranks, group in groups:
        if rank not in ranks:
            sums.append(0)
            continue
        ddp, sync = compressed(module, 0.2, process_group=group)
        for step in range(2):
            ddp.zero_grad()
            square(ddp(draw(ddp, rank, step))).backward()
        assert sync.report().ranks == len(ranks)
        sums.append(checksum([p.grad for p in module.parameters() if p.grad is not None]))
        sync.close()
    return sums


def test_other_process_groups() -> None:
    for sums in zip(*run(2, other_groups)):
        assert len(set(sums) - {0}) == 1, sums


def unlike(rank: int, kind: str) -> str:
    """Models that are not the same on all ranks."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=60))
    # From now on: to make it may take long on a busy machine.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5), group)
    width = 8 + 4 * rank if kind == "shape" else 8
    layers = [nn.Linear(8, width), *([nn.Linear(8, 8)] if kind == "number" and rank else [])]
    return said(lambda: compressed(nn.Sequential(*layers), process_group=group))


@pytest.mark.parametrize("kind", ["shape", "number"])
def test_models_that_differ_between_ranks(kind: str) -> None:
    assert any("RuntimeError" in text for text in run(2, unlike, kind))


def untrained(rank: int) -> "list[str]":
    return [said(lambda: compressed(module)) for module in (nn.Module(), nn.Linear(2, 2).requires_grad_(False))]


def test_models_without_gradients() -> None:
    for texts in run(2, untrained):
        assert all("require" in text for text in texts), texts


def static(rank: int) -> "list[bool]":
    """DDP finds out by itself whether the graph is static, hook or not."""
    found = []
    for turns in (False, True):
        ddp, sync = compressed(models.Branches(), find_unused_parameters=True)
        for step in range(4):
            square(ddp(draw(ddp, rank, step), (0, 1) if turns and step % 2 else (0,))).backward()
        found.append(ddp.reducer._ddp_graph_static())
        sync.close()
    return found


def test_static_graphs_are_noticed() -> None:
    assert run(2, static) == [[True, False]] * 2


def used(rank: int) -> "list[list[int]]":
    """DDP's counts of the ranks that have used a parameter."""
    ddp, sync = compressed(models.Branches(), find_unused_parameters=True)
    counts = []
    for step in range(4):
        square(ddp(draw(ddp, rank, step), (0, 1) if step % 2 and rank else (0,))).backward()
        counts.append(ddp.reducer._get_local_used_map().tolist())
    sync.close()
    return counts


def test_counts_of_used_parameters() -> None:
    assert run(2, used) == [[[2, 2, 0], [2, 2, 1], [2, 2, 0], [2, 2, 1]]] * 2
