"""Every method gives on a GPU what it gives on the CPU, and the same on all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from given import DEVICE, LARGE, SHAPES, bits, difference, means
from ports import free_port
from ranks import harm, run

METHODS = ["topk", "gaussian-k", "redsync", "redsync:quantize=true", "dgc", "iwp", "ar-topk", "random-k", "dense"]
MORE = [
    "redsync:momentum=0.9",
    "topk:momentum=0.9,nesterov=true",
    "gaussian-k:scope=layer,clip=0.5",
    "topk:values=bf16",
    "ar-topk:leader=var",
    "topk:warmup=dense/1",
]


def compared(rank: int, method: str, dtype: torch.dtype, shapes: Any) -> "tuple[int, list[int], float]":
    """The bits of the means; the steps in which they differ from the CPU's; how far."""
    settings = {"steps_per_epoch": 2} if "warmup" in method else {}
    found, kept = means(rank, DEVICE, method, settings, dtype, shapes)
    expected, kept_there = means(rank, "cpu", method, settings, dtype, shapes)
    # What is kept comes after the steps.
    found.append(torch.cat([values.flatten() for values in kept.values()] or [torch.zeros(1)]))
    expected.append(torch.cat([values.flatten() for values in kept_there.values()] or [torch.zeros(1)]))
    assert all(mean.any() for mean in found[:-1]), "a mean is all zeros"
    differ = [step for step, (a, b) in enumerate(zip(found, expected)) if not torch.equal(a, b)]
    return bits(found[:-1]), differ, difference(found, expected)


def check(ranks: int, method: str, dtype: torch.dtype = torch.float32, shapes: Any = SHAPES, within: float = 0) -> None:
    results = run(ranks, compared, method, dtype, shapes)
    assert len({result[0] for result in results}) == 1, f"{method}: replicas differ"
    for rank, (_, differ, far) in enumerate(results):
        if within:
            assert far <= within, f"{method}, rank {rank}: differs from the CPU by {far:.3g} of the norm"
        else:
            assert not differ, f"{method}, rank {rank}: steps {differ} differ from the CPU, by {far:.3g} of the norm"


@pytest.mark.parametrize("method", METHODS + MORE)
def test_two_ranks(method: str) -> None:
    check(2, method)


@pytest.mark.parametrize("method", METHODS)
def test_four_ranks(method: str) -> None:
    check(4, method)


@pytest.mark.parametrize("ranks", [2, 4])
def test_frequencies(ranks: int) -> None:
    """Two libraries transform: their last bits differ. With 10 bits such a bit may tip a value to the next one."""
    check(ranks, "fft:bits=0", within=1e-5)
    check(ranks, "fft", within=1e-2)


def test_large_layers() -> None:
    check(2, "redsync", shapes=LARGE)
    check(2, "redsync:quantize=true", shapes=LARGE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["topk", "redsync", "iwp", "ar-topk", "dense"])
def test_sixteen_bits(method: str, dtype: torch.dtype) -> None:
    check(2, method, dtype)


def over_nccl(rank: int) -> "list[str]":
    wrong = []
    torch.cuda.set_device(0)
    for backend in ("nccl", "cpu:gloo,cuda:nccl"):
        dist.destroy_process_group()
        dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
        reference = dist.new_group(backend="gloo")
        for method in ("redsync", "topk", "ar-topk", "iwp", "dense"):
            found, _ = means(rank, DEVICE, method)
            expected, _ = means(rank, "cpu", method, process_group=reference)
            if bits(found) != bits(expected):
                wrong.append(f"{method} over {backend}")
    return wrong


@pytest.mark.skipif(DEVICE != "cuda", reason="NCCL needs a GPU")
def test_one_rank_over_nccl() -> None:
    assert harm(1, over_nccl) == [[]]
