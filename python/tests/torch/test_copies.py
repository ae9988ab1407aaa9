"""A hook's state, and models with one, are pickled and copied."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run
from small import checksum, everything, mlp, train
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import thinwire
import thinwire.torch as tw


def _start(**settings: Any) -> "tuple[Any, Any, Any]":
    model = mlp()
    ddp = DistributedDataParallel(model, find_unused_parameters=settings.pop("unused", False))
    return model, ddp, tw.compress(ddp, "topk", **{**everything("topk"), **settings})


def through_a_file(given: Any) -> Any:
    file = io.BytesIO()
    torch.save(given, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def goes_on(rank: int, how: str) -> None:
    """A model that goes on with the copy of a hook's state has the bits of one without a break."""
    model, ddp, sync = _start(unused=how == "ddp", steps_per_epoch=2)
    train(rank, ddp, range(4))
    kept = sync.residual()
    weights = {name: values.clone() for name, values in model.state_dict().items()}
    if how == "state":
        loaded = through_a_file({"hook": tw.hook, "state": sync})
        copied, hook = loaded["state"], loaded["hook"]
        assert hook is tw.hook
    elif how == "deepcopy":
        copied = copy.deepcopy(sync)
    else:
        other = through_a_file(ddp) if how == "ddp" else copy.deepcopy(ddp)
        [(hook, copied)] = other._comm_hooks
        other._comm_hooks.clear()
    assert _equal(copied.residual(), kept) and copied.state_dict()["step"] == 4
    train(rank, ddp, range(4, 8))
    expected = checksum(model)

    if how in ("state", "deepcopy"):
        model = mlp()
        model.load_state_dict(weights)
        other = DistributedDataParallel(model)
    # DDP itself does not register the hooks that a loaded model has.
    other.register_comm_hook(copied, tw.hook)
    train(rank, other, range(4, 8))
    assert checksum(other.module) == expected
    assert set(copied.residual()) == set(kept) and copied.report().steps == 4
    # The copy has groups of its own.
    copied.close()
    train(rank, ddp, range(8, 9))
    sync.close()


@pytest.mark.parametrize("how", ["state", "deepcopy", "ddp", "deepcopy of ddp"])
def test_a_copy_goes_on_with_the_same_bits(how: str) -> None:
    run(2, goes_on, how)


def averages(rank: int) -> None:
    model, ddp, sync = _start()
    plain = DistributedDataParallel(mlp())
    tw.compress(plain, "topk", **everything("topk"))
    # One rank alone: a copy exchanges nothing.
    averaged = AveragedModel(ddp) if rank == 0 else None
    for step in range(5):
        train(rank, ddp, range(step, step + 1))
        train(rank, plain, range(step, step + 1))
        if averaged is not None:
            averaged.update_parameters(ddp)
            copy.deepcopy(ddp)
    assert checksum(model) == checksum(plain.module)
    if averaged is not None:
        assert averaged.n_averaged == 5
        [(_, copied)] = averaged.module._comm_hooks
        assert not copied._engine.has_kept(), "it was copied before anything was kept"
        # Nor does it close anything of the original's.
        copied.close()
    averaged = None
    train(rank, ddp, range(5, 7))
    sync.close()
    # The model can be copied, but what is gone can't be: the copy does not go on without it.
    for copied in (copy.deepcopy(sync), through_a_file(sync)):
        with pytest.raises(thinwire.Error, match="save before close"):
            copied.state_dict()
        other = DistributedDataParallel(mlp())
        other.register_comm_hook(copied, tw.hook)
        with pytest.raises(thinwire.Error, match="was closed"):
            train(rank, other, range(1))
    copy.deepcopy(ddp)


def test_weights_are_averaged() -> None:
    run(2, averages)


def with_a_scaler(rank: int) -> "tuple[str, str]":
    model = mlp()
    ddp = DistributedDataParallel(model)
    sync = tw.compress(ddp, "topk", scaler=torch.amp.GradScaler("cpu"), **everything("topk"))
    copied = copy.deepcopy(sync)
    other = DistributedDataParallel(mlp())
    other.register_comm_hook(copied, tw.hook)
    with pytest.raises(thinwire.BadState) as scaled:
        train(rank, other, range(1))
    # Of rank 0, on every rank.
    model, ddp, sync = _start()
    train(rank, ddp, range(2))
    file = io.BytesIO()
    torch.save(sync, file)
    files = [file.getvalue()]
    dist.broadcast_object_list(files)
    copied = torch.load(io.BytesIO(files[0]), weights_only=False)
    other = DistributedDataParallel(mlp())
    other.register_comm_hook(copied, tw.hook)
    with pytest.raises(thinwire.BadState) as foreign:
        train(rank, other, range(1))
    return str(scaled.value), str(foreign.value)


def test_copies_that_would_go_wrong_are_refused() -> None:
    for scaled, foreign in run(2, with_a_scaler):
        assert "made with a scaler" in scaled
        assert "what rank 0 of 2 had not sent, this is rank 1 of 2" in foreign


def loop(rank: int) -> None:
    def step(model: Any, sync: Any, number: int) -> None:
        for position, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(1000 * rank + 10 * number + position)
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        sync.synchronize()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad

    model = mlp()
    sync = tw.Synchronizer(model.named_parameters(), "topk", density=0.05)
    for number in range(3):
        step(model, sync, number)
    pairs = [copy.deepcopy((model, sync)), through_a_file((model, sync))]
    for number in range(3, 6):
        step(model, sync, number)
    for other, copied in pairs:
        for number in range(3, 6):
            step(other, copied, number)
        assert checksum(other) == checksum(model)
        assert _equal(copied.residual(), sync.residual())


def test_a_loop_and_its_model_are_copied_together() -> None:
    run(2, loop)
