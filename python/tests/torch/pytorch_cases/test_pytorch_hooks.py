"""What PyTorch's tests ask of communication hooks: parity, futures, wrappers, registration, pickling, compilation."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any, Callable

import models
import pytest
import torch
import torch.distributed as dist
from compared import checksum
from ranks import run
from small import everything
from table import draw, square
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, optimizer_overlap_hooks
from torch.distributed.optim.utils import as_functional_optim
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw


def parity(rank: int, method: str, settings: "dict[str, Any]") -> None:
    """Each gradient is the mean of what the ranks have, in every one of many steps."""
    torch.manual_seed(1)
    group = dist.new_group([0, 1]) if settings.pop("group", False) else None
    ddp = DistributedDataParallel(nn.Linear(1, 5), process_group=group)
    sync = tw.compress(ddp, method, process_group=group, **settings)
    for _ in range(30):
        ddp.zero_grad()
        ddp(torch.tensor([float(rank)])).sum().backward()
        weight, bias = (p.grad for p in ddp.parameters())
        assert torch.equal(weight, torch.full((5, 1), 0.5)) and torch.equal(bias, torch.ones(5))
    assert sync.report().steps == 30
    sync.close()


PARITY: "dict[str, tuple[str, dict[str, Any]]]" = {
    **{
        method: (method, everything(method, 1.0))
        for method in thinwire.methods()
        if method not in ("auto", "quantized", "fft", "iwp")
    },
    "small layers": ("redsync", {"fuse_up_to": 0}),
    "a process group": ("topk", {**everything("topk", 1.0), "group": True}),
}


@pytest.mark.parametrize("case", list(PARITY))
def test_parity(case: str) -> None:
    method, settings = PARITY[case]
    run(2, parity, method, settings)


def quantized(rank: int) -> "tuple[int, float]":
    """One value for all that a message sends of a layer: no step is exact, and the sum of them goes where it should."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(nn.Linear(20, 20, bias=False))
    sync = tw.compress(ddp, "redsync", quantize=True, **everything("redsync", 0.1))
    arrived, expected = torch.zeros(20, 20), torch.zeros(20, 20)
    for step in range(20):
        ddp.zero_grad()
        square(ddp(draw(ddp, rank, step, 4, 20))).backward()
        arrived += ddp.module.weight.grad
        for each in range(2):
            x = draw(ddp, each, step, 4, 20)
            expected += (ddp.module.weight.detach() @ x.T @ x).mul(2 / 2)
    sync.close()
    return checksum([arrived]), float(torch.cosine_similarity(arrived.flatten(), expected.flatten(), dim=0))


def test_quantized_values() -> None:
    (one, alike), (two, _) = run(2, quantized)
    assert one == two and alike > 0.8, alike


def after_noop(rank: int) -> None:
    """A hook that exchanges nothing, and an exchange after the backward pass."""
    model = models.Net()
    plain, ddp = DistributedDataParallel(copy.deepcopy(model)), DistributedDataParallel(model)
    ddp.register_comm_hook(None, debugging_hooks.noop_hook)
    sync = tw.Synchronizer(model.named_parameters(), "topk", **everything("topk", 1.0))
    for step in range(3):
        for one in (plain, ddp):
            one.zero_grad()
            square(one(draw(one, rank, step))).backward()
        sync.synchronize()
        for theirs, mine in zip(plain.parameters(), ddp.parameters()):
            if theirs.requires_grad:
                torch.testing.assert_close(mine.grad, theirs.grad)
    sync.close()


def test_an_exchange_after_the_pass() -> None:
    run(2, after_noop)


def watched(rank: int) -> "list[list[tuple[bool, bool]]]":
    """For each bucket whether it is the last, and whether its future ends with the mean in its own buffer."""
    seen: "list[tuple[Any, Any]]" = []
    ddp = DistributedDataParallel(nn.Sequential(*(nn.Linear(20, 20) for _ in range(6))), bucket_cap_mb=0.0005)

    # DDP looks at annotations, and would find text.
    def hook(state, bucket):  # type: ignore[no-untyped-def]
        future = tw.hook(state, bucket)
        seen.append((bucket, future))
        return future

    ddp.register_comm_hook(tw.HookState(ddp, "topk", **everything("topk", 1.0)), hook)
    found = []
    for step in range(4):
        seen.clear()
        square(ddp(draw(ddp, rank, step, 4, 20))).backward()
        found.append([(b.is_last(), f.done() and f.value().data_ptr() == b.buffer().data_ptr()) for b, f in seen])
    return found


def test_futures_of_all_buckets_end() -> None:
    for steps in run(2, watched):
        # DDP makes several only after the first step.
        assert len(steps[-1]) > 2
        for buckets in steps:
            assert [last for last, _ in buckets] == [False] * (len(buckets) - 1) + [True]
            assert all(ended for _, ended in buckets)


def _doubled(state, bucket):  # type: ignore[no-untyped-def]
    """A chain of callbacks that comes to nothing."""
    return tw.hook(state, bucket).then(lambda f: 2 * f.value()).then(lambda f: f.value() / 2)


def _divided(state, bucket):  # type: ignore[no-untyped-def]
    """Callbacks whose result takes the mean's place."""
    return tw.hook(state, bucket).then(lambda f: torch.ones_like(f.value()) + 1)


WRAPPERS: "dict[str, tuple[Callable[..., Any], float]]" = {
    "callbacks": (_doubled, 1e-6),
    "fp16": (default_hooks.fp16_compress_wrapper(tw.hook), 2e-3),
    "bf16": (default_hooks.bf16_compress_wrapper(tw.hook), 2e-2),
}


def wrapped(rank: int, name: str, density: float) -> "tuple[int, float]":
    hook, close = WRAPPERS[name]
    model = models.Net()
    plain, ddp = DistributedDataParallel(copy.deepcopy(model)), DistributedDataParallel(model, bucket_cap_mb=0.0005)
    ddp.register_comm_hook(tw.HookState(ddp, "topk", **everything("topk", density)), hook)
    for step in range(4):
        for one in (plain, ddp):
            one.zero_grad()
            # Some of it without an exchange.
            with one.no_sync():
                square(one(draw(one, rank, 100 + step))).backward()
            square(one(draw(one, rank, step))).backward()
        for theirs, mine in zip(plain.parameters(), ddp.parameters()):
            if theirs.requires_grad and density == 1.0:
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=close, atol=close)
    return checksum([p.grad for p in ddp.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", list(WRAPPERS))
def test_hooks_around_it(name: str) -> None:
    for density in (1.0, 0.1):
        one, two = run(2, wrapped, name, density)
        assert one == two, f"{density}: replicas differ"


def replaced(rank: int) -> None:
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    ddp.register_comm_hook(tw.HookState(ddp, "topk"), _divided)
    ddp(torch.ones(1, 2) * rank).mean().backward()
    assert all(torch.equal(p.grad, torch.full_like(p, 2.0)) for p in ddp.parameters())


def test_what_a_callback_returns_becomes_the_gradient() -> None:
    run(2, replaced)


OPTIMIZERS: "dict[str, tuple[Any, dict[str, Any]]]" = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6}),
}


def optimized_in_the_hook(rank: int, name: str, subset: bool, options: "dict[str, Any]") -> None:
    """The optimiser's step in the callbacks of the futures is the one after the backward pass."""
    kind, settings = OPTIMIZERS[name]
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    trained = []
    for in_hook in (True, False):
        ddp = DistributedDataParallel(copy.deepcopy(model), **options)
        parameters = list(ddp.parameters())[: 1 if subset else None]
        state = tw.HookState(ddp, "topk", **everything("topk", 0.2))
        hook: Any = tw.hook
        optimizer = kind(parameters, foreach=False, **settings)
        if in_hook:
            functional = as_functional_optim(kind, **settings)
            overlapped = optimizer_overlap_hooks._OptimizerHookState(functional, parameters if subset else None)
            hook = optimizer_overlap_hooks._hook_then_optimizer(tw.hook, overlapped)
        ddp.register_comm_hook(state, hook)
        for step in range(6):
            ddp.zero_grad()
            square(ddp(draw(ddp, rank, step))).backward()
            if not in_hook:
                optimizer.step()
        trained.append(list(ddp.parameters()))
    before = list(model.parameters())
    for number, (one, other) in enumerate(zip(*trained)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert torch.equal(one, before[number]) == (subset and number > 0)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_an_optimizer_in_the_hook(name: str) -> None:
    for subset in (False, True):
        for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
            run(2, optimized_in_the_hook, name, subset, options)


def refused(rank: int) -> "dict[str, str]":
    """What DDP refuses of hooks, and what compress() does."""

    def said(work: "Callable[[], Any]") -> str:
        try:
            work()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    ddp = DistributedDataParallel(nn.Linear(2, 2))
    found = {"not a hook": said(lambda: ddp.register_comm_hook({}, {}))}  # type: ignore[arg-type]
    tw.compress(ddp)
    found["a second hook"] = said(lambda: ddp.register_comm_hook(None, default_hooks.allreduce_hook))
    other = DistributedDataParallel(nn.Linear(2, 2))
    other.register_comm_hook(None, default_hooks.allreduce_hook)
    found["a hook is there"] = said(lambda: tw.compress(other))
    wrong = DistributedDataParallel(nn.Linear(2, 2))
    wrong.register_comm_hook(None, tw.hook)
    found["no state"] = said(lambda: wrong(torch.ones(1, 2)).sum().backward())
    found["no model"] = said(lambda: tw.compress(nn.Linear(2, 2)))  # type: ignore[arg-type]
    return found


def test_what_is_refused() -> None:
    for found in run(2, refused):
        assert "must be callable" in found["not a hook"]
        assert "once" in found["a second hook"] and "once" in found["a hook is there"]
        assert "HookState" in found["no state"]
        assert found["no model"].startswith("BadArgument") and "Synchronizer" in found["no model"]


def logged(rank: int) -> "list[Any]":
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    names = [ddp._get_ddp_logging_data().get("comm_hook")]
    tw.compress(ddp)
    names.append(ddp._get_ddp_logging_data()["comm_hook"])
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()
    return [*names, ddp._get_ddp_logging_data()["comm_hook"]]


def test_ddp_logs_its_name() -> None:
    for names in run(2, logged):
        assert names == [None, "thinwire_hook", "thinwire_hook"]


def pickled(rank: int) -> "tuple[int, int]":
    """A state that was saved with the model goes on as the one that was not."""
    torch.manual_seed(1)
    net = models.Net()
    ddp = DistributedDataParallel(net)
    state = tw.HookState(ddp, "topk", **everything("topk", 0.1))
    ddp.register_comm_hook(state, tw.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)

    def train(model: Any, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            square(model(draw(model, rank, step))).backward()
            optimizer.step()

    train(ddp, optimizer, range(10))
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "hook": tw.hook, "state": state, "kept": state.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    assert saved["hook"] is tw.hook and saved["state"].method == state.method
    twin = models.Net()
    twin.load_state_dict(saved["model"])
    other = DistributedDataParallel(twin)
    again = tw.compress(other, "topk", **everything("topk", 0.1))
    again.load_state_dict(saved["kept"])
    train(ddp, optimizer, range(10, 20))
    train(other, torch.optim.SGD(other.parameters(), 0.1), range(10, 20))
    return checksum(list(net.parameters())), checksum(list(twin.parameters()))


def test_a_state_is_pickled() -> None:
    sums = run(2, pickled)
    assert len({total for rank in sums for total in rank}) == 1, sums


def compiled(rank: int, options: "dict[str, Any]") -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    plain, ddp = DistributedDataParallel(copy.deepcopy(model)), DistributedDataParallel(model, **options)
    tw.compress(ddp, "topk", **everything("topk", 1.0))
    fast = torch.compile(ddp, backend="aot_eager")
    for step in range(4):
        for wrapper, called in ((plain, plain), (ddp, fast)):
            wrapper.zero_grad()
            square(called(draw(wrapper, rank, step))).backward()
        for theirs, mine in zip(plain.parameters(), ddp.parameters()):
            torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("options", [{}, {"static_graph": True}], ids=["dynamic", "static graph"])
def test_compiled(options: "dict[str, Any]") -> None:
    run(2, compiled, options)


def profiled(rank: int, kind: str) -> "tuple[int, int]":
    """A profiler changes nothing, and sees DDP."""
    sums = []
    for watching in (False, True):
        torch.manual_seed(1)
        ddp = DistributedDataParallel(nn.Linear(8, 8), find_unused_parameters=True)
        sync = tw.compress(ddp, "topk", **everything("topk", 0.1))
        profiler: Any = contextlib.nullcontext()
        if watching:
            profiler = torch.autograd.profiler.profile() if kind == "autograd" else torch.profiler.profile()
        with profiler as found:
            for step in range(4):
                square(ddp(draw(ddp, rank, step))).backward()
        if watching:
            events = found.function_events if kind == "autograd" else found.events()
            assert any("DistributedDataParallel" in event.name for event in events)
        sums.append(checksum([p.grad for p in ddp.parameters()]))  # type: ignore[misc]
        sync.close()
    return sums[0], sums[1]


@pytest.mark.parametrize("kind", ["autograd", "torch"])
def test_profiled(kind: str) -> None:
    for without, with_it in run(2, profiled, kind):
        assert without == with_it


def meshed(rank: int) -> int:
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(1)
    ddp = DistributedDataParallel(models.Net(), device_mesh=init_device_mesh("cpu", (2,)))
    sync = tw.compress(ddp, "topk", **everything("topk", 0.1))
    for step in range(3):
        square(ddp(draw(ddp, rank, step))).backward()
    assert sync.report().steps == 3 and sync.report().ranks == 2
    return checksum([p.grad for p in ddp.parameters() if p.grad is not None])


def test_a_device_mesh() -> None:
    one, two = run(2, meshed)
    assert one == two
