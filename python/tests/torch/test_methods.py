"""What must hold for every method: replicas stay equal, training works, nothing is lost."""

from __future__ import annotations

import torch
from ranks import run
from small import checksum, everything, mlp, train
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw

# What auto chooses depends on the clock: it has tests of its own.
METHODS = [name for name in thinwire.methods() if name != "auto"]


def fifty_steps(rank: int, methods: "list[str]") -> "dict[str, tuple[int, float, float]]":
    found = {}
    for method in methods:
        model = mlp()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
        sync = tw.compress(ddp, method, check_replicas_every=10, **everything(method))
        if sync._warms_up_by_epochs:
            sync.set_epoch(100)
        losses = train(rank, ddp, range(50))
        found[method] = (checksum(model), sum(losses[:5]), sum(losses[-5:]))
        sync.close()
    return found


def _check(results: "list[dict[str, tuple[int, float, float]]]") -> None:
    for method, (bits, first, last) in results[0].items():
        assert all(result[method][0] == bits for result in results), f"{method}: replicas differ"
        assert last < 0.9 * first, f"{method} learns nothing: {first} to {last}"


def test_replicas_are_equal_after_50_steps_of_every_method() -> None:
    _check(run(2, fifty_steps, METHODS))


def test_replicas_are_equal_on_four_ranks() -> None:
    _check(run(4, fifty_steps, ["redsync", "ar-topk", "iwp", "fft", "dense"]))


def flows(rank: int, method: str) -> "list[dict[str, torch.Tensor]]":
    """Gradient of this rank, mean, residual before and after the third step, so that something was kept before."""
    model = mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.002)
    sync = tw.compress(ddp, method, **everything(method))
    train(rank, ddp, range(2))
    before = sync.residual()
    plain = mlp()
    plain.load_state_dict(model.state_dict())
    seen: "list[dict[str, torch.Tensor]]" = []
    keep = lambda step: seen.append({name: p.grad.clone() for name, p in model.named_parameters()})  # noqa: E731
    train(rank, plain, range(2, 3))  # type: ignore[arg-type]
    own = {name: p.grad.clone() for name, p in plain.named_parameters()}
    train(rank, ddp, range(2, 3), each=keep)
    return [own, seen[0], before, sync.residual()]


def test_nothing_is_lost() -> None:
    for method in ("topk", "redsync", "gaussian-k", "ar-topk", "quantized", "quantized:bits=2"):
        results = run(2, flows, method)
        for name, mean in results[0][1].items():
            came = sum(result[0][name].double() + result[2][name].double() for result in results)
            stayed = sum(result[3][name].double() for result in results)
            sent = mean.double() * len(results)
            assert any(result[3][name].any() for result in results), f"{method} keeps nothing of {name}"
            torch.testing.assert_close(sent + stayed, came, rtol=1e-5, atol=1e-6, msg=lambda m: f"{method} {name}: {m}")
