"""``run_ahead``: the GPU waits for the means and not the host; the bits are the same, and nothing stands still."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from given import DEVICE, Given, apply, bits, gradients, small
from ports import free_port
from ranks import harm, run
from test_gpu_training import Busy, cycles_of
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
METHODS = ["topk", "redsync", "ar-topk", "dense", "iwp", "topk:momentum=0.9", "fft"]
#: Dense at first: what they need besides, they need when the GPU already waits.
LATE = ["topk:warmup=dense/1", "fft:warmup=dense/1"]


def start(method: str, dtype: torch.dtype = torch.float32, **settings: Any) -> "tuple[Given, Any, Any]":
    model = Given(dtype=dtype).to(DEVICE)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
    epochs = {"steps_per_epoch": 6} if "warmup" in method else {}
    return model, ddp, tw.compress(ddp, method, **{"run_ahead": True, **small(method), **epochs, **settings})


def trained(rank: int, method: str, run_ahead: bool, dtype: torch.dtype = torch.float32) -> "tuple[int, Any, Any]":
    """The bits of all means, what is kept, and what was counted; the host asks nothing in between."""
    model, ddp, sync = start(method, dtype, run_ahead=run_ahead, check_replicas_every=2)
    given = [gradients(model, rank, number) for number in range(8)]
    cycles, seen = cycles_of(0.02), []
    for each in given:
        model.zero_grad()
        Busy.apply(ddp(each), cycles).backward()
        seen.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        apply(model)
    # Also if it comes between two steps.
    kept, report = sync.residual(), sync.report()
    step = sync.state_dict()["step"]
    sync.close()
    return bits([*seen, *model.parameters()]), bits(list(kept.values())), (step, report.steps)


def both(rank: int, method: str, dtype: torch.dtype) -> "tuple[Any, Any]":
    return trained(rank, method, True, dtype), trained(rank, method, False, dtype)


@pytest.mark.parametrize("method", METHODS + LATE)
def test_the_same_bits(method: str) -> None:
    for found, expected in run(2, both, method, torch.float32):
        assert found == expected and found[2] == (8, 8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_same_bits_of_sixteen(dtype: torch.dtype) -> None:
    for found, expected in run(2, both, "redsync", dtype):
        assert found == expected


def over_nccl(rank: int) -> "list[str]":
    torch.cuda.set_device(0)
    dist.destroy_process_group()
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    return [method for method in METHODS if trained(rank, method, True) != trained(rank, method, False)]


def test_one_rank_over_nccl() -> None:
    assert harm(1, over_nccl) == [[]]


def hooks_while_busy(rank: int, method: str) -> "tuple[float, float, int]":
    """The seconds of the longest hook in a step that keeps the GPU busy for half a second, of the whole step, and the
    number of hooks."""
    model, ddp, sync = start(method)
    cycles, times, on_bucket = cycles_of(0.5), [], sync.on_bucket

    def timed(bucket: Any) -> Any:
        begun = time.monotonic()
        future = on_bucket(bucket)
        times.append(time.monotonic() - begun)
        return future

    sync.on_bucket = timed
    for number in range(7):
        model.zero_grad()
        given = gradients(model, rank, number)
        torch.cuda.synchronize()
        times.clear()
        loss = ddp(given)
        begun = time.monotonic()
        (Busy.apply(loss, cycles) if number == 6 else loss).backward()
        apply(model)
        taken = time.monotonic() - begun
    torch.cuda.synchronize()
    # It was really busy, and the step has ended.
    assert time.monotonic() - begun > 0.4
    assert sync.report().steps == 7
    return max(times), taken, len(times)


@pytest.mark.parametrize("method", ["topk", "iwp", "redsync"])
def test_the_host_is_not_held_up(method: str) -> None:
    for longest, taken, hooks in run(2, hooks_while_busy, method):
        assert hooks > 1 and longest < 0.2 and taken < 0.3, (longest, taken, hooks)


def on_another_stream(rank: int) -> "tuple[int, int]":
    """The bits of steps on a stream of their own, and on torch's."""

    def weights(stream: Any) -> int:
        model, ddp, sync = start("topk")
        cycles, given = cycles_of(0.02), [gradients(model, rank, number) for number in range(7)]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for each in given:
                model.zero_grad()
                Busy.apply(ddp(each), cycles).backward()
                apply(model)
        torch.cuda.synchronize()
        sync.close()
        return bits(list(model.parameters()))

    return weights(torch.cuda.Stream()), weights(torch.cuda.current_stream())


def test_another_stream() -> None:
    for found, expected in run(2, on_another_stream):
        assert found == expected


def poisoned(rank: int, method: str) -> "tuple[list[str], int]":
    model, ddp, sync = start(method)
    said, seen, weights = [], [], []
    for number in range(9):
        given = gradients(model, rank, number)
        if number == 5 and rank == 1:
            given[3].view(-1)[37] = float("nan")
        model.zero_grad()
        try:
            ddp(given).backward()
            said.append("")
        except thinwire.StepSkipped as error:
            said.append(str(error))
        seen.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        apply(model)
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
        if rank == 0:
            # One rank alone may ask: all of them hear of it in the same pass.
            sync.report()
    assert (sync.report().steps, sync.report().skipped) == (8, 1)
    sync.close()
    zeros = [not each.any() for each in seen]
    assert zeros == [number == 5 for number in range(9)], zeros
    kept = [bits(each) for each in weights]
    assert kept[5] == kept[4] and len(set(kept)) == 8
    return said, kept[-1]


@pytest.mark.parametrize("method", ["redsync", "topk", "ar-topk", "fft", "dense"])
def test_a_nan_is_told_of_one_step_late_by_all_ranks(method: str) -> None:
    results = run(2, poisoned, method)
    assert results[0] == results[1]
    said = results[0][0]
    assert [bool(words) for words in said] == [number == 6 for number in range(9)], said
    for word in ("step 5 ", "rank 1", '"wide"', "NaN", "one step late"):
        assert word in said[6], said[6]


def states(rank: int, method: str) -> "list[bool]":
    """Whether a state taken after each of some steps is that of a run that waits."""

    def kept(run_ahead: bool) -> "list[int]":
        model, ddp, sync = start(method, run_ahead=run_ahead)
        found = []
        for number in range(6):
            model.zero_grad()
            ddp(gradients(model, rank, number)).backward()
            apply(model)
            found.append(bits(list(sync.residual().values())))
        sync.close()
        return found

    return [a == b for a, b in zip(kept(True), kept(False))]


def test_states_in_between() -> None:
    assert run(2, states, "topk") == run(2, states, "redsync") == [[True] * 6] * 2


def while_the_other_is_late(rank: int, run_ahead: bool) -> int:
    """Rank 1 comes late to every step, so that the GPU waits for long on rank 0. In that time the host gives it more to
    do, and the engine needs more memory with each step."""
    model, ddp, sync = start("topk", run_ahead=run_ahead, timeout=30)
    numbers, pinned = torch.zeros(1000, device=DEVICE), torch.zeros(1000).pin_memory()
    for number, density in enumerate([0.001, 0.001, 0.001, 0.001, 0.01, 0.1, 0.5, 0.02]):
        sync.set_density(density)
        given = gradients(model, rank, number)
        model.zero_grad()
        if rank == 1:
            time.sleep(0.5)
        ddp(given).backward()
        apply(model)
        for _ in range(300):
            numbers.add_(1.0)
        numbers.copy_(pinned, non_blocking=True)
        pinned.copy_(numbers, non_blocking=True)
    torch.cuda.synchronize()
    sync.close()
    return bits(list(model.parameters()))


def test_the_other_may_be_late() -> None:
    assert run(2, while_the_other_is_late, True) == run(2, while_the_other_is_late, False)


def far_ahead(rank: int, run_ahead: Any) -> "tuple[int, float]":
    """The weights, and the longest step of the optimiser while the other rank is late."""
    model, ddp, sync = start("topk", timeout=20, run_ahead=run_ahead)
    optimizer, seconds = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), 0.0
    for number in range(8):
        given = gradients(model, rank, number)
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(0.3)
        ddp(given).backward()
        begun = time.monotonic()
        optimizer.step()
        seconds = max(seconds, time.monotonic() - begun if number > 4 else 0.0)
    sync.close()
    return bits(list(model.parameters())), seconds


def test_how_far_it_runs() -> None:
    found = {run_ahead: run(2, far_ahead, run_ahead) for run_ahead in (False, True, "forward")}
    assert len({weights for both in found.values() for weights, _ in both}) == 1
    # The first rank waits for the other before, in, or after its optimiser.
    seconds = {run_ahead: both[0][1] for run_ahead, both in found.items()}
    assert seconds[False] < 0.2 < seconds[True] and seconds["forward"] < 0.2, seconds


def anything_after_the_optimizer(rank: int) -> "tuple[int, float]":
    """After an optimiser's step torch may load kernels it has not needed before, fill the queues of the GPU, and copy
    from and to memory that is not pinned. The steps, and the longest backward pass."""
    model, ddp, sync = start("topk", timeout=20)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    new = [torch.special.i0, torch.erfinv, torch.digamma, torch.special.ndtri, lambda x: x.cumprod(0).logcumsumexp(0)]
    numbers, seconds = torch.zeros(1000, device=DEVICE), 0.0
    for number in range(4 + len(new)):
        given = gradients(model, rank, number)
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 1 and number >= 4:
            time.sleep(0.3)
        begun = time.monotonic()
        ddp(given).backward()
        seconds = max(seconds, time.monotonic() - begun if number > 4 else 0.0)
        optimizer.step()
        if number >= 4:
            new[number - 4](torch.rand(50_000_000 + 10_000_000 * number, device=DEVICE))
            for _ in range(5000):
                numbers.add_(1.0)
            assert torch.ones(3_000_000).to(DEVICE).sum().cpu() == 3_000_000
    steps = sync.report().steps
    sync.close()
    return steps, seconds


def test_anything_may_come_after_the_optimizer() -> None:
    for steps, seconds in run(2, anything_after_the_optimizer):
        # It does run ahead until then: the other rank is late by 0.3 seconds.
        assert steps == 9 and seconds < 0.2, (steps, seconds)


def others_go_meanwhile(rank: int) -> "tuple[int, float]":
    """The weights, and the longest step, where other synchronizers on the same GPU go while it waits for a rank that is
    late: their memory can't be given back before."""
    others = []
    for method in ("topk", "fft"):
        model, ddp, sync = start(method)
        for number in range(4):
            model.zero_grad()
            ddp(gradients(model, rank, number)).backward()
            apply(model)
        sync.wait()
        others.append((model, ddp, sync))
    model, ddp, sync = start("topk", timeout=20)
    seconds = 0.0
    for number in range(8):
        given = gradients(model, rank, number)
        model.zero_grad()
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(0.3)
        begun = time.monotonic()
        ddp(given).backward()
        if number > 4 and others:
            others.pop()
            gc.collect()
        apply(model)
        sync.wait()
        seconds = max(seconds, time.monotonic() - begun)
    assert not others
    sync.close()
    return bits(list(model.parameters())), seconds


def test_others_may_go_meanwhile() -> None:
    (weights, seconds), (other, _) = run(2, others_go_meanwhile)
    assert weights == other and seconds < 5, seconds


def in_a_loop(rank: int, run_ahead: bool) -> int:
    model = Given().to(DEVICE)
    sync = tw.Synchronizer(model.named_parameters(), "redsync", 0.01, bucket_bytes=50_000, run_ahead=run_ahead)
    for number in range(8):
        for parameter, gradient in zip(model.parameters(), gradients(model, rank, number)):
            parameter.grad = gradient
        sync.synchronize()
        apply(model)
    assert sync.report().steps == 8
    sync.close()
    return bits(list(model.parameters()))


def test_a_loop() -> None:
    assert run(2, in_a_loop, True) == run(2, in_a_loop, False)


def asking(rank: int) -> "list[float]":
    """What may be asked while the GPU waits, and what must be waited for before."""
    model, ddp, sync = start("topk", timeout=30)
    sums, batch = [], torch.ones(300_000)
    for number in range(9):
        given = gradients(model, rank, number)
        model.zero_grad()
        ddp(given).backward()
        total = torch.stack([parameter.grad.sum() for parameter in model.parameters()]).sum()
        apply(model)
        assert bool(torch.isfinite(total)) and str(total)
        sums.append(total.item())
        if number % 2:
            sync.wait()
            assert batch.to(DEVICE).sum().cpu() == 300_000 and bits(list(model.parameters()))
    sync.close()
    return sums


def test_what_may_be_asked() -> None:
    found = run(2, asking)
    assert found[0] == found[1]


def in_the_way(rank: int) -> "tuple[str, float]":
    """A copy to memory that is not pinned on one rank, while the other is late: what is said, and how long it took."""
    model, ddp, sync = start("topk", timeout=30)
    seconds = 0.0
    try:
        for number in range(9):
            given = gradients(model, rank, number)
            model.zero_grad()
            if number == 6 and rank == 1:
                time.sleep(1)
            ddp(given).backward()
            apply(model)
            if number == 6 and rank == 0:
                begun = time.monotonic()
                bits(list(model.parameters()))
                seconds = time.monotonic() - begun
        sync.close()
    except thinwire.Error as error:
        return str(error), seconds
    return "", seconds


def test_a_copy_that_stands_in_the_way_is_an_error() -> None:
    (said, seconds), (other, _) = harm(2, in_the_way)
    # There are drivers that let the engine through.
    assert seconds < 5 or "not pinned" in said, (said, seconds)
    assert seconds < 20 and (said == "") == (other == ""), (said, other)


def left_to_itself(rank: int) -> int:
    """The last step is nobody's any more when it ends; the weights get its mean all the same."""
    model, ddp, sync = start("topk")
    for number in range(6):
        model.zero_grad()
        if number == 5 and rank == 1:
            time.sleep(0.5)
        ddp(gradients(model, rank, number)).backward()
        apply(model)
    del ddp, sync
    return bits(list(model.parameters()))


def test_a_step_ends_though_nobody_asks() -> None:
    found = run(2, left_to_itself)
    assert found[0] == found[1]


def one_dies(rank: int) -> "tuple[str, bool, float]":
    """What the other says, whether its GPU goes on, and after how long."""
    model, ddp, sync = start("topk", timeout=5)
    for number in range(5):
        model.zero_grad()
        ddp(gradients(model, rank, number)).backward()
        apply(model)
    torch.cuda.synchronize()
    if rank == 1:
        os._exit(3)
    begun, said = time.monotonic(), "nothing"
    try:
        for number in range(5, 8):
            model.zero_grad()
            ddp(gradients(model, rank, number)).backward()
            apply(model)
    except thinwire.GroupLost as error:
        said = str(error)
    torch.cuda.synchronize()
    finite = all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
    return said, finite, time.monotonic() - begun


def test_a_rank_that_dies_ends_the_other_with_an_error() -> None:
    (said, finite, seconds), nothing = harm(2, one_dies)
    assert nothing is None and finite and seconds < 30
    assert "rank 1" in said or "connection" in said.lower(), said


def one_gives_up(rank: int) -> bool:
    """The engine is given up while a step is under way: whatever waits goes on."""
    model, ddp, sync = start("topk", timeout=5)
    for number in range(6):
        model.zero_grad()
        ddp(gradients(model, rank, number)).backward()
    sync._give_up(RuntimeError("this is a test"))
    torch.cuda.synchronize()
    return True


def test_nothing_waits_for_an_engine_that_was_given_up() -> None:
    assert harm(2, one_gives_up) == [True, True]
