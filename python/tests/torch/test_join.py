"""Uneven inputs, and means by samples."""

from __future__ import annotations

from typing import Any

import torch
from ranks import run
from small import batch, checksum, everything, mlp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw


def uneven(rank: int, mean: str, method: str, options: "dict[str, Any]") -> "list[int]":
    """Two epochs in which rank r has 3 + 2r batches."""
    model = mlp()
    ddp = DistributedDataParallel(model, **options)
    sync = tw.compress(ddp, method, mean=mean, check_replicas_every=1, **everything(method))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if mean == "samples":
        sync.set_samples(8)
    for epoch in range(2):
        with ddp.join() if epoch else Join([ddp]):
            for step in range(3 + 2 * rank):
                x, y = batch(rank, step)
                optimizer.zero_grad()
                nn.functional.mse_loss(ddp(x), y).backward()
                optimizer.step()
        # A rank that had run out counts again in the next epoch.
        assert sync._samples == (8 if mean == "samples" else 1)
    return [checksum(model), sync.report().steps]


def test_ranks_with_unlike_numbers_of_batches() -> None:
    for mean in ("ranks", "samples"):
        for method in ("topk", "ar-topk", "dense"):
            results = run(2, uneven, mean, method, {"bucket_cap_mb": 0.002})
            assert results[0] == results[1] and results[0][1] == 10, (mean, method, results)
    results = run(4, uneven, "samples", "redsync", {"find_unused_parameters": True})
    assert all(result == results[0] for result in results) and results[0][1] == 18


def by_samples(rank: int, method: str, options: "dict[str, Any]", ranks: int) -> None:
    """Batches of unlike sizes, and a rank that runs out: the mean is that over all samples."""
    model = mlp()
    ddp = DistributedDataParallel(model, **options)
    sync = tw.compress(ddp, method, mean="samples", **everything(method, 1.0))
    batches = lambda step: [batch(r, step, 3 + 5 * r) for r in range(ranks) if r > 0 or step < 2]  # noqa: E731
    with ddp.join():
        for step in range(4 if rank > 0 else 2):
            x, y = batch(rank, step, 3 + 5 * rank)
            model.zero_grad()
            sync.set_samples(len(x))
            nn.functional.mse_loss(ddp(x), y).backward()
            twin = mlp()
            all_x, all_y = (torch.cat(parts) for parts in zip(*batches(step)))
            nn.functional.mse_loss(twin(all_x), all_y).backward()
            for mine, expected in zip(model.parameters(), twin.parameters()):
                torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-4, atol=1e-6)


def test_the_mean_by_samples_is_the_mean_over_all_samples() -> None:
    for method in ("topk", "ar-topk", "dense"):
        run(2, by_samples, method, {}, 2)
    run(2, by_samples, "topk", {"static_graph": True}, 2)
    run(4, by_samples, "topk", {"bucket_cap_mb": 0.002}, 4)
