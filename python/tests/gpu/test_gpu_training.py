"""What a training on a GPU meets: skipped steps, scalers, other densities, checkpoints, no waiting on the way."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest
import torch
from given import DEVICE, Given, apply, bits, flat, gradients, means, small
from ranks import run
from small import batch, mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw
from thinwire.torch import _device

needs_gpu = pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")


def start(method: str, **settings: Any) -> "tuple[Given, Any, Any]":
    dtype = settings.pop("dtype", torch.float32)
    model = Given(dtype=dtype).to(DEVICE)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
    return model, ddp, tw.compress(ddp, method, **{**small(method), **settings})


def step(rank: int, number: int, model: nn.Module, ddp: Any) -> None:
    model.zero_grad()
    ddp(gradients(model, rank, number)).backward()
    apply(model)


def learns(rank: int) -> "tuple[int, float, float]":
    model = mlp(64).to(DEVICE)
    ddp = DistributedDataParallel(model, device_ids=[0] if DEVICE == "cuda" else None)
    tw.compress(ddp, "redsync", density=0.05, dense_up_to=0)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for number in range(60):
        x, y = (tensor.to(DEVICE) for tensor in batch(rank, number))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return bits(list(model.parameters())), sum(losses[:5]), sum(losses[-5:])


def test_a_network_learns_and_its_replicas_stay_equal() -> None:
    for found in (run(2, learns), run(4, learns)):
        assert len({sums for sums, _, _ in found}) == 1, "replicas differ"
        assert all(last < 0.8 * first for _, first, last in found), found


def poisoned(rank: int, method: str) -> "tuple[str, int]":
    model, ddp, sync = start(method)
    for number in range(3):
        step(rank, number, model, ddp)
    before, weights = sync.residual(), bits(list(model.parameters()))
    given = gradients(model, rank, 3)
    if rank == 1:
        given[3].view(-1)[37] = float("nan")
    model.zero_grad()
    said = "nothing"
    try:
        ddp(given).backward()
    except thinwire.StepSkipped as error:
        said = str(error)
    assert not flat(model).any(), "gradients of a skipped step are zeros"
    assert bits(list(model.parameters())) == weights
    for name, values in sync.residual().items():
        torch.testing.assert_close(values, before[name], rtol=1e-4, atol=1e-5)
    for number in range(4, 6):
        step(rank, number, model, ddp)
    assert (sync.report().steps, sync.report().skipped) == (5, 1)
    return said, bits(list(model.parameters()))


@pytest.mark.parametrize("method", ["redsync", "topk", "ar-topk", "fft", "dense"])
def test_a_nan_on_one_rank_skips_the_step_on_all(method: str) -> None:
    results = run(2, poisoned, method)
    assert results[0] == results[1]
    for word in ("rank 1", '"wide"', "NaN"):
        assert word in results[0][0], results[0][0]


def scaled(rank: int, dtype: torch.dtype) -> "list[str]":
    """A scale that is a power of two changes no bit; and a step with an infinity changes nothing but the scale."""
    expected, _ = means(rank, DEVICE, "topk", dtype=dtype, steps=4)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=1024.0, growth_interval=1000)
    model, ddp, sync = start("topk", scaler=scaler, dtype=dtype)
    optimizer, wrong = torch.optim.SGD(model.parameters(), 0.0), []
    for number in range(4):
        model.zero_grad()
        scaler.scale(ddp(gradients(model, rank, number))).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None and parameter.grad.dtype == dtype
            parameter.grad.div_(1024.0)
        if not torch.equal(flat(model), expected[number]):
            wrong.append(f"step {number} differs by {(flat(model) - expected[number]).abs().max()}")
        apply(model)
    before, weights = sync.residual(), bits(list(model.parameters()))
    given = gradients(model, rank, 4)
    if rank == 1:
        given[2][3, 4] = float("inf")
    model.zero_grad()
    scaler.scale(ddp(given)).backward()
    assert torch.isinf(flat(model)).any()
    if dtype == torch.float32:
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 512.0
    assert bits(list(model.parameters())) == weights and sync.report().skipped == 1
    after = sync.residual()
    return wrong + [f"{name} was changed" for name in before if not torch.equal(before[name], after[name])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_scaler(dtype: torch.dtype) -> None:
    for wrong in run(2, scaled, dtype):
        assert not wrong


def beyond_half_precision(rank: int) -> bool:
    weight = nn.Parameter(torch.zeros(1000, dtype=torch.float16, device=DEVICE))
    sync = tw.Synchronizer([("w", weight)], "topk", density=0.001)
    for _ in range(40):
        weight.grad = torch.full_like(weight, 3000.0)
        sync.synchronize()
        if not torch.isfinite(weight.grad).all():
            return False
    return True


def test_what_was_kept_for_long_stays_finite_in_half_precision() -> None:
    assert run(2, beyond_half_precision) == [True, True]


def densities(rank: int) -> "list[int]":
    model, ddp, sync = start("topk")
    asked = []
    for number, density in enumerate([None, None, 0.05, 0.5, None]):
        sync.set_density(density)
        step(rank, number, model, ddp)
        asked.append(sync.report().kept)
    return asked


def test_other_densities() -> None:
    for kept in run(2, densities):
        assert kept[0] == kept[1] == kept[4] and 4 * kept[0] < kept[2] < 6 * kept[0] and kept[3] > 40 * kept[0], kept


def resumed(rank: int, method: str) -> "tuple[list[int], int]":
    """The bits after a pause; on this device, and from its state on the CPU."""

    def run_from(device: str, state: Any, weights: Any, steps: range) -> "tuple[Any, Any, int]":
        model = Given().to(device)
        model.load_state_dict(weights or model.state_dict())
        sync = tw.Synchronizer(model.named_parameters(), method, bucket_bytes=50_000, **small(method))
        if state is not None:
            sync.load_state_dict(state)
        for number in steps:
            for parameter, gradient in zip(model.parameters(), gradients(model, rank, number)):
                parameter.grad = gradient
            sync.synchronize()
            apply(model)
        saved = sync.state_dict()
        sync.close()
        left = {name: values.clone() for name, values in model.state_dict().items()}
        return saved, left, bits(list(model.parameters()))

    _, _, expected = run_from(DEVICE, None, None, range(6))
    saved, weights, _ = run_from(DEVICE, None, None, range(3))
    return [run_from(device, saved, weights, range(3, 6))[2] for device in (DEVICE, "cpu")], expected


@pytest.mark.parametrize("method", ["topk", "gaussian-k", "redsync:momentum=0.9", "iwp", "fft"])
def test_a_loop_goes_on_from_a_state(method: str) -> None:
    results = run(2, resumed, method)
    assert results[0] == results[1]
    (here, on_the_cpu), expected = results[0]
    assert here == expected, "a resumed run differs"
    assert on_the_cpu == expected or method == "fft", "the run goes on differently on the CPU"


class Busy(torch.autograd.Function):
    """Keeps the GPU busy at the start of a backward pass."""

    @staticmethod
    def forward(context: Any, loss: torch.Tensor, cycles: int) -> torch.Tensor:
        context.cycles = cycles
        return loss.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> "tuple[torch.Tensor, None]":  # type: ignore[override]
        torch.cuda._sleep(context.cycles)
        return gradient, None


def cycles_of(seconds: float) -> int:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    end.synchronize()
    return int(50_000_000 * seconds * 1000 / begin.elapsed_time(end))


def hooks_while_busy(rank: int, method: str, with_scaler: bool) -> "tuple[float, float, int]":
    """The seconds in all hooks but the last of a step, and in the last, while the GPU is busy for half a second."""
    scaler = torch.amp.GradScaler(DEVICE, init_scale=16.0) if with_scaler else None
    model, ddp, sync = start(method, scaler=scaler)
    cycles, times, on_bucket = cycles_of(0.5), [], sync.on_bucket

    def timed(bucket: Any) -> Any:
        begun = time.monotonic()
        future = on_bucket(bucket)
        times.append(time.monotonic() - begun)
        return future

    sync.on_bucket = timed
    for number in range(5):
        model.zero_grad()
        given = gradients(model, rank, number)
        torch.cuda.synchronize()
        times.clear()
        loss = ddp(given) if scaler is None else scaler.scale(ddp(given))
        # By then the buckets are what they will be.
        (Busy.apply(loss, cycles) if number == 4 else loss).backward()
    return sum(times[:-1]), times[-1], len(times)


@needs_gpu
@pytest.mark.parametrize("method, with_scaler", [("topk", False), ("iwp", False), ("redsync", True)])
def test_only_the_last_hook_waits(method: str, with_scaler: bool) -> None:
    for first, last, buckets in run(2, hooks_while_busy, method, with_scaler):
        assert buckets > 1 and first < 0.2 < last, (first, last, buckets)


def on_another_stream(rank: int) -> bool:
    """A step on a stream of its own, while the GPU is busy, has the same bits."""
    expected, _ = means(rank, DEVICE, "topk", steps=4)
    model, ddp, _ = start("topk")
    cycles, stream = cycles_of(0.05), torch.cuda.Stream()
    for number in range(4):
        with torch.cuda.stream(stream):
            model.zero_grad()
            Busy.apply(ddp(gradients(model, rank, number)), cycles).backward()
            found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            apply(model)
        stream.synchronize()
        if not torch.equal(found.cpu(), expected[number]):
            return False
    return True


@needs_gpu
def test_another_stream() -> None:
    assert run(2, on_another_stream) == [True, True]


def staged(rank: int) -> "tuple[bool, list[str]]":
    expected, _ = means(rank, "cpu", "redsync")
    weighted, _ = means(rank, "cpu", "iwp", dtype=torch.bfloat16)
    usable = _device._native.cuda_unusable
    _device._native.cuda_unusable = lambda _: "this is a test"
    _device._staged.cache_clear()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found, _ = means(rank, DEVICE, "redsync")
            weighted_found, _ = means(rank, DEVICE, "iwp", dtype=torch.bfloat16)
    finally:
        _device._native.cuda_unusable = usable
        _device._staged.cache_clear()
    said = [str(warning.message) for warning in caught if "this is a test" in str(warning.message)]
    return bits(found) == bits(expected) and bits(weighted_found) == bits(weighted), said


@needs_gpu
def test_without_an_engine_on_the_gpu_the_cpu_does_it() -> None:
    for same, said in run(2, staged):
        assert same and len(said) == 1, said


@needs_gpu
def test_the_engine_can_use_this_gpu() -> None:
    assert run(2, unusable) == [None, None]


def unusable(rank: int) -> Any:
    return _device._native.cuda_unusable()


def several_devices(rank: int) -> str:
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4).to(DEVICE)})
    try:
        tw.Synchronizer(model.named_parameters(), "topk")
    except thinwire.BadArgument as error:
        return str(error)
    return "nothing"


@needs_gpu
def test_parameters_on_several_devices_are_named() -> None:
    for said in run(2, several_devices):
        assert "first.weight is on cpu and second.weight is on cuda:0" in said, said


def default_device(rank: int, dtype: torch.dtype) -> None:
    """torch's default device and dtype change nothing, nor does a round trip through a state."""

    def run_steps() -> "list[int]":
        generator = torch.Generator(device="cpu").manual_seed(rank)
        values = torch.randn(100, 100, generator=generator, dtype=torch.float32, device="cpu")
        seen = []
        for method in ("topk", "redsync", "iwp"):
            weight = nn.Parameter(torch.ones(100, 100, dtype=torch.float32, device=DEVICE))
            sync = tw.Synchronizer([("w", weight)], method)
            for number in range(3):
                weight.grad = (values * (number + 1)).to(DEVICE)
                sync.synchronize()
                sync.load_state_dict(sync.state_dict())
            seen += [bits([weight.grad]), bits([sync.residual()["w"]])]  # type: ignore[list-item]
            sync.close()
        return seen

    expected = run_steps()
    torch.set_default_dtype(dtype)
    torch.set_default_device(DEVICE)
    try:
        assert run_steps() == expected
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_defaults_of_torch_change_nothing(dtype: torch.dtype) -> None:
    run(2, default_device, dtype)
