"""What PyTorch's tests ask of buffers and states: they are DDP's, and compression leaves them alone."""

from __future__ import annotations

import copy
import io
from typing import Any

import models
import pytest
import torch
import torch.distributed as dist
from compared import checksum
from ranks import run
from small import everything
from table import draw, square
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation

import thinwire.torch as tw


def compressed(module: torch.nn.Module, density: float = 0.1, **options: Any) -> DistributedDataParallel:
    ddp = DistributedDataParallel(module, **options)
    tw.compress(ddp, "topk", **everything("topk", density))
    return ddp


def _coalesced(ddp: Any, named: "dict[str, torch.Tensor]") -> None:
    ddp._default_broadcast_coalesced(list(named.values()))


def _summed(ddp: Any, named: "dict[str, torch.Tensor]") -> None:
    for buffer in named.values():
        dist.all_reduce(buffer, group=ddp.process_group)


def _summed_later(ddp: Any, named: "dict[str, torch.Tensor]") -> "list[Any]":
    return [dist.all_reduce(b, group=ddp.process_group, async_op=True).get_future() for b in named.values()]


#: The hook for buffers, and when DDP calls it.
HOOKS = {
    "none": (None, None),
    "broadcast": (_coalesced, _BufferCommHookLocation.POST_FORWARD),
    "sum before": (_summed, _BufferCommHookLocation.PRE_FORWARD),
    "sum after": (_summed, _BufferCommHookLocation.POST_FORWARD),
    "sum after, futures": (_summed_later, _BufferCommHookLocation.POST_FORWARD),
}


def buffers(rank: int, name: str) -> int:
    """The buffers of two models, one with compression: those that DDP would have."""
    hook, place = HOOKS[name]
    plain = DistributedDataParallel(models.Buffered())
    ddp = compressed(models.Buffered())
    if hook is not None:
        for one in (plain, ddp):
            one._register_buffer_comm_hook(one, hook, place)
    for step in range(3):
        for one in (plain, ddp):
            if rank == 0 and hook is None:
                one.module.buffer.add_(1)
            loss = square(one(draw(one, rank, step)))
            loss.backward()
        assert torch.equal(plain.module.buffer, ddp.module.buffer), step
    return checksum([ddp.module.buffer])  # type: ignore[list-item]


@pytest.mark.parametrize("name", list(HOOKS))
def test_buffers(name: str) -> None:
    one, two = run(2, buffers, name)
    assert one == two


def synchronized(rank: int) -> "tuple[int, int]":
    """Ranks that start with unlike parameters have rank 0's, and have new ones of rank 1 when told to."""
    from torch.distributed.utils import _sync_module_states

    torch.manual_seed(rank)
    ddp = compressed(torch.nn.Linear(8, 8))
    before = checksum(list(ddp.parameters()))
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.add_(rank + 1)
    _sync_module_states(ddp.module, ddp.process_group, ddp.broadcast_bucket_size, 1, ddp.parameters_to_ignore)
    for step in range(3):
        square(ddp(draw(ddp, rank, step))).backward()
    return before, checksum([*ddp.parameters(), *(p.grad for p in ddp.parameters())])  # type: ignore[misc]


def test_module_states() -> None:
    one, two = run(2, synchronized)
    assert one == two


def saved(rank: int) -> "list[int]":
    """Six steps, and six with a checkpoint in the middle, into DDP and into a plain module."""
    sums = []
    for stop in (False, True):
        torch.manual_seed(1)
        ddp = DistributedDataParallel(models.Net())
        sync = tw.compress(ddp, "topk", **everything("topk", 0.1))
        optimizer = torch.optim.SGD(ddp.parameters(), 0.05, momentum=0.9)
        for step in range(6):
            if stop and step == 3:
                file = io.BytesIO()
                states = {"ddp": ddp.state_dict(), "optimizer": optimizer.state_dict(), "sync": sync.state_dict()}
                torch.save(states, file)
                file.seek(0)
                loaded = torch.load(file, weights_only=True)
                for parameter in ddp.parameters():
                    parameter.detach().zero_()
                ddp.load_state_dict(loaded["ddp"])
                optimizer.load_state_dict(loaded["optimizer"])
                sync.load_state_dict(loaded["sync"])
                plain = models.Net()
                plain.load_state_dict({name.removeprefix("module."): v for name, v in loaded["ddp"].items()})
                assert checksum(list(plain.parameters())) == checksum(list(ddp.parameters()))
            optimizer.zero_grad()
            square(ddp(draw(ddp, rank, step))).backward()
            optimizer.step()
        sums.append(checksum(list(ddp.parameters())))
    return sums


def test_checkpoints() -> None:
    results = run(2, saved)
    assert len({total for sums in results for total in sums}) == 1, results


def whole(rank: int, options: "dict[str, Any]") -> None:
    """DDP itself is saved and loaded before its first step, as torch.save can, and then trained with compression."""
    ddp = DistributedDataParallel(models.Net(), **options)
    file = io.BytesIO()
    torch.save(ddp, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    plain = DistributedDataParallel(copy.deepcopy(loaded.module), **options)
    tw.compress(loaded, "topk", **everything("topk", 1.0))
    for step in range(3):
        for one in (plain, loaded):
            one.zero_grad()
            square(one(draw(one, rank, step))).backward()
        for theirs, mine in zip(plain.parameters(), loaded.parameters()):
            if theirs.requires_grad:
                torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("options", [{}, {"static_graph": True}], ids=["dynamic", "static graph"])
def test_a_saved_model(options: "dict[str, Any]") -> None:
    run(2, whole, options)


def inferring(rank: int) -> None:
    """One rank alone may evaluate between steps."""
    ddp = compressed(models.Net())
    for step in range(3):
        ddp.train()
        square(ddp(draw(ddp, rank, step))).backward()
        if rank == 0:
            ddp.eval()
            with torch.no_grad():
                for _ in range(3):
                    assert torch.equal(ddp(draw(ddp, 0, step)), ddp.module(draw(ddp, 0, step)))


def test_inference_on_one_rank() -> None:
    run(2, inferring)
