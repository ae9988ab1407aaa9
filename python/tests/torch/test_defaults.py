"""torch's default dtype and device: every tensor of thinwire's own has its dtype and device, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ranks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw
from thinwire import _native
from thinwire.torch import _state

METHODS = ["topk", "redsync", "iwp", "ar-topk", "gaussian-k", "dgc:momentum=0.9", "fft"]


def _gradients(rank: int, step: int, like: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator(device="cpu").manual_seed(100 * rank + step)
    return torch.randn(like.shape, generator=generator, dtype=torch.float32, device="cpu").to(like.dtype)


def _steps(rank: int, method: str) -> "list[torch.Tensor]":
    """Means, the residual and what it is after a round trip through a state, of float32 parameters on the CPU."""
    weight = nn.Parameter(torch.ones(100, 100, dtype=torch.float32, device="cpu"))
    bias = nn.Parameter(torch.ones(3, dtype=torch.float32, device="cpu"))
    sync = tw.Synchronizer([("w", weight), ("b", bias)], method)
    sync.load_state_dict(sync.state_dict())
    seen = []
    for step in range(4):
        for parameter in (weight, bias):
            parameter.grad = _gradients(rank, step, parameter)
        sync.synchronize()
        seen += [weight.grad.clone(), bias.grad.clone()]  # type: ignore[union-attr]
        before = sync.state_dict()
        sync.load_state_dict(before)
        after = sync.state_dict()
        for kind in ("residual", "momentum"):
            for name, values in before[f"rank {rank}"][kind].items():
                assert values.dtype == torch.float32 and values.device.type == "cpu"
                assert torch.equal(values, after[f"rank {rank}"][kind][name]), f"{method} {kind} {name}"
    everybody = sync.state_dict(all_ranks=True)
    if rank == 0:
        seen += [everybody[f"rank {other}"]["residual"]["w"] for other in range(2)]
    sync.close()
    return seen


def _under(dtype: torch.dtype, device: "str | None", work: Any) -> Any:
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        return work()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def loops(rank: int, dtype: torch.dtype, device: "str | None") -> None:
    for method in METHODS:
        expected = _steps(rank, method)
        found = _under(dtype, device, lambda: _steps(rank, method))
        assert len(found) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(expected, found)), method


DEFAULTS = [(torch.bfloat16, None), (torch.float64, None), (torch.float32, "meta"), (torch.bfloat16, "cpu")]


@pytest.mark.parametrize(("dtype", "device"), DEFAULTS)
def test_a_loop_does_not_depend_on_the_defaults(dtype: torch.dtype, device: "str | None") -> None:
    run(2, loops, dtype, device)


def hooks(rank: int, dtype: torch.dtype, device: "str | None") -> None:
    def trained(method: str) -> "list[torch.Tensor]":
        torch.manual_seed(1)
        layers = [nn.Linear(20, 60, dtype=torch.float32, device="cpu"), nn.Linear(60, 3, device="cpu").float()]
        for number, layer in enumerate(layers):
            for parameter in layer.parameters():
                parameter.data.copy_(_gradients(7, number, parameter))
        model = nn.Sequential(*layers)
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
        sync = tw.compress(ddp, method, density=0.05)
        for step in range(4):
            x = _gradients(rank, step, torch.empty(5, 20, dtype=torch.float32, device="cpu"))
            ddp(x).square().mean().backward()
            sync.load_state_dict(sync.state_dict())
        found = [*sync.residual().values(), *(parameter.grad for parameter in model.parameters())]
        sync.close()
        return [each.clone() for each in found]  # type: ignore[union-attr]

    for method in METHODS:
        expected, found = trained(method), _under(dtype, device, lambda: trained(method))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)), method


@pytest.mark.parametrize(("dtype", "device"), [entry for entry in DEFAULTS if entry[1] != "meta"])
def test_a_hook_does_not_depend_on_the_defaults(dtype: torch.dtype, device: "str | None") -> None:
    run(2, hooks, dtype, device)


def test_what_is_handed_over_is_checked() -> None:
    bad = [
        torch.ones(4, dtype=torch.bfloat16),
        torch.ones(4, dtype=torch.float64),
        torch.ones(4, 2, dtype=torch.float32)[:, 0],
        torch.ones(4, dtype=torch.float32, device="meta"),
    ]
    for tensor in bad:
        with pytest.raises(thinwire.BadArgument, match="expected contiguous torch.float32"):
            _state.handed(tensor)


def test_the_native_part_refuses_memory_of_another_length() -> None:
    compressor = _native.Compressor("topk", [("w", (4,))], 1)
    for tensor in (torch.ones(4, dtype=torch.bfloat16), torch.ones(3, dtype=torch.float32)):
        with pytest.raises(thinwire.BadArgument, match="bytes"):
            compressor.compress((tensor, tensor.data_ptr(), 4), None, None)
