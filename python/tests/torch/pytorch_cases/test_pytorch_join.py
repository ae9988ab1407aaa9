"""What PyTorch's tests ask of `join`: ranks with unlike numbers of inputs."""

from __future__ import annotations

import contextlib
from typing import Any

import models
import pytest
import torch
import torch.distributed as dist
from compared import checksum
from ranks import run
from small import everything
from table import draw, square
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

#: Model, what DDP is told, and which ranks use only the second of its layers.
MODELS: "dict[str, tuple[Any, dict[str, Any], tuple[int, ...]]]" = {
    "batch normalisation": (models.Normalized, {}, ()),
    "convolutions": (lambda: nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 8, 3), nn.Conv1d(8, 16, 3)), {}, ()),
    "small": (lambda: nn.Linear(8, 8, bias=False), {}, ()),
    "unused where it goes on": (models.Branches, {"find_unused_parameters": True}, (1,)),
    "unused where it ends": (models.Branches, {"find_unused_parameters": True}, (0,)),
    "bucket views": (models.Net, {"gradient_as_bucket_view": True}, ()),
}

#: The numbers of inputs of each rank.
NUMBERS = {2: [(0, 3), (4, 6), (5, 2)], 4: [(0, 3, 3, 3), (2, 3, 6, 6)]}


def uneven(rank: int, size: int, name: str, every: int) -> "list[int]":
    """Trains in all the ways of `NUMBERS`, exchanging gradients in every so many steps."""
    build, options, second_only = MODELS[name]
    sums = []
    for numbers in NUMBERS[size]:
        torch.manual_seed(1)
        ddp = DistributedDataParallel(build(), bucket_cap_mb=0.0005, **options)
        sync = tw.compress(ddp, "topk", check_replicas_every=1, **everything("topk", 0.1))
        with ddp.join():
            for step in range(numbers[rank]):
                here = step % every == every - 1
                with contextlib.nullcontext() if here else ddp.no_sync():
                    extra = () if not second_only else ((1,) if rank in second_only else (0, 1),)
                    square(ddp(draw(ddp, rank, step), *extra)).backward()
                with torch.no_grad():
                    for parameter in ddp.parameters() if here else ():
                        if parameter.grad is not None:
                            parameter.sub_(parameter.grad, alpha=0.01)
                            parameter.grad = None
        assert ddp._authoritative_rank == max(r for r in range(size) if numbers[r] == max(numbers))
        assert sync.report().steps == max(numbers) // every, (numbers, sync.report().steps)
        sums.append(checksum([*ddp.parameters(), *(b.float() for b in ddp.buffers())]))
        sync.close()
    return sums


@pytest.mark.parametrize("name", list(MODELS))
def test_uneven_inputs(name: str) -> None:
    for every in (1, 2):
        one, two = run(2, uneven, 2, name, every)
        assert one == two, f"every {every}: replicas differ"


@pytest.mark.parametrize("name", ["small", "unused where it ends"])
def test_uneven_inputs_on_four_ranks(name: str) -> None:
    results = run(4, uneven, 4, name, 1)
    assert all(result == results[0] for result in results), "replicas differ"


class Communicates(nn.Module):
    """Exchanges something of its own in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = x.detach().mean()
        dist.all_reduce(shift)
        return self.layer(x + shift)


STOPPED = {"batch normalisation": models.Normalized, "small": lambda: nn.Linear(8, 8), "own exchange": Communicates}


def stopped(rank: int, name: str) -> "tuple[str, int, int, int]":
    """All ranks stop when the first has run out of inputs, here rank 1."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(STOPPED[name]())
    sync = tw.compress(ddp, "topk", **everything("topk", 0.1))
    done, said = 0, "nothing"
    try:
        with ddp.join(throw_on_early_termination=True):
            for step in range(3 if rank == 1 else 6):
                square(ddp(draw(ddp, rank, step))).backward()
                done += 1
    except RuntimeError as error:
        said = str(error)
    steps = sync.report().steps
    sync.close()
    return said, done, steps, checksum([p.grad for p in ddp.parameters()])  # type: ignore[misc]


@pytest.mark.parametrize("name", list(STOPPED))
def test_all_stop_with_the_first(name: str) -> None:
    (longer, *mine), (shorter, *others) = run(2, stopped, name)
    assert "at least one rank that exhausted inputs" in longer and "Rank 1 exhausted all inputs" in shorter
    assert mine == others and mine[:2] == [3, 3]


def divided(rank: int, mean: str) -> None:
    """Gradients of ones: their mean tells how many ranks they were divided by."""
    ddp = DistributedDataParallel(nn.Linear(5, 5, bias=False))
    sync = tw.compress(ddp, "topk", mean=mean, **everything("topk", 1.0))
    if mean == "samples":
        sync.set_samples(3)
    with ddp.join(divide_by_initial_world_size=mean == "ranks"):
        for step in range(3 + 2 * rank):
            ddp.zero_grad()
            ddp(torch.full((1, 5), 50.0)).sum().backward()
            expected = 50.0 if mean == "samples" or step < 3 else 25.0
            assert torch.equal(ddp.module.weight.grad, torch.full((5, 5), expected)), (step, ddp.module.weight.grad)
    sync.close()


@pytest.mark.parametrize("mean", ["ranks", "samples"])
def test_what_means_are_divided_by(mean: str) -> None:
    run(2, divided, mean)


def equivalent(rank: int) -> None:
    """Every input counts once: the same as one process that goes through the inputs of all ranks."""
    torch.manual_seed(1)
    model, alone = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    alone.load_state_dict(model.state_dict())
    x = draw(model, 0, 0)
    by_itself = torch.optim.SGD(alone.parameters(), 0.03)
    for _ in range(2 + 4):
        by_itself.zero_grad()
        alone(x).sum().backward()
        by_itself.step()
    ddp = DistributedDataParallel(model)
    sync = tw.compress(ddp, "topk", **everything("topk", 1.0))
    optimizer = torch.optim.SGD(model.parameters(), 0.03 * 2)
    with ddp.join():
        for _ in range(2 * (rank + 1)):
            optimizer.zero_grad()
            ddp(x).sum().backward()
            optimizer.step()
    torch.testing.assert_close(model.weight, alone.weight)
    sync.close()


def test_as_one_process() -> None:
    run(2, equivalent)


def disabled(rank: int) -> None:
    ddp = DistributedDataParallel(nn.Linear(1, 1))
    sync = tw.compress(ddp, "topk", **everything("topk", 1.0))
    with ddp.join(enable=False):
        for _ in range(4):
            ddp.zero_grad()
            ddp(torch.tensor([float(rank)])).sum().backward()
            assert ddp.module.weight.grad.item() == 0.5
    assert not ddp._join_config.enable and sync.report().steps == 4
    sync.close()


def test_switched_off() -> None:
    run(2, disabled)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("by design")


def failing(rank: int) -> str:
    ddp = DistributedDataParallel(Fails())
    sync = tw.compress(ddp, "topk")
    try:
        with ddp.join():
            ddp(torch.ones(1)).sum().backward()
    except ValueError as error:
        return str(error)
    finally:
        sync.close()
    return "nothing"


def test_an_exception_passes_through() -> None:
    assert run(2, failing) == ["by design"] * 2
