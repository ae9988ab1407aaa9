"""States: by parameter name, for the same bits again, for other buckets and other numbers of ranks."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch
from ranks import harm, run
from small import checksum, everything, mlp, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw

RESUMED = ["redsync", "topk", "gaussian-k", "ar-topk", "dgc:momentum=0.9", "iwp"]


def _start(method: str, bucket_cap_mb: float = 0.002, model: "nn.Module | None" = None) -> "tuple[Any, Any, Any]":
    model = model or mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    return model, ddp, tw.compress(ddp, method, steps_per_epoch=1, **everything(method))


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resumes(rank: int, methods: "list[str]", first_cap_mb: float, bucket_cap_mb: float) -> None:
    for method in methods:
        model, ddp, sync = _start(method, first_cap_mb)
        train(rank, ddp, range(6))
        saved = through_a_file({"model": model.state_dict(), "thinwire": sync.state_dict()})
        train(rank, ddp, range(6, 12))
        expected = checksum(model)

        model, ddp, sync = _start(method, bucket_cap_mb)
        model.load_state_dict(saved["model"])
        sync.load_state_dict(saved["thinwire"])
        train(rank, ddp, range(6, 12))
        if bucket_cap_mb == first_cap_mb:
            assert checksum(model) == expected, f"{method}: other bits"
        # Into one that has already trained something else.
        model, ddp, sync = _start(method, bucket_cap_mb)
        train(rank, ddp, range(3))
        sync.load_state_dict(saved["thinwire"])
        for name, values in sync.residual().items():
            assert torch.equal(values, saved["thinwire"][f"rank {rank}"]["residual"][name]), f"{method} {name}"


def test_a_resumed_run_has_the_bits_of_one_without_a_break() -> None:
    run(2, resumes, RESUMED, 25.0, 25.0)


def test_a_state_fits_other_buckets() -> None:
    run(2, resumes, ["redsync", "dgc:momentum=0.9"], 0.002, 25.0)
    run(2, resumes, ["redsync", "dgc:momentum=0.9"], 25.0, 0.002)


def shaped(rank: int) -> None:
    """Channels-last weights lie in another order; their residual has the shape and order of the parameter."""

    def start(channels_last: bool) -> "tuple[Any, Any]":
        torch.manual_seed(1)
        model = nn.Conv2d(3, 4, 3)
        if channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        ddp = DistributedDataParallel(model)
        return ddp, tw.compress(ddp, "topk", density=0.02)

    first, sync = start(True)
    second, plain = start(False)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(rank))
    for ddp in (first, second):
        ddp(x).square().mean().backward()
    mine, other = sync.residual(), plain.residual()
    torch.testing.assert_close(mine["weight"], other["weight"], rtol=1e-4, atol=1e-6)
    plain.load_state_dict(sync.state_dict())
    assert torch.equal(plain.residual()["weight"], mine["weight"])


def test_a_residual_has_the_shape_of_its_parameter() -> None:
    run(2, shaped)


def trained(rank: int, method: str) -> Any:
    model, ddp, sync = _start(method)
    before = sync.state_dict()
    assert before["step"] == 0 and not any(values.any() for values in before[f"rank {rank}"]["residual"].values())
    train(rank, ddp, range(5))
    everybody = sync.state_dict(all_ranks=True)
    assert (everybody is None) == (rank != 0)
    sync.load_state_dict(before)
    return through_a_file(everybody)


def continues(rank: int, states: Any, method: str) -> Any:
    model, ddp, sync = _start(method, 0.01)
    sync.load_state_dict(states)
    train(rank, ddp, range(5, 5))
    held = sync.state_dict()
    assert held["step"] == 5
    train(rank, ddp, range(5, 8))
    assert sync.state_dict()["step"] == 8
    return held


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 2)])
def test_a_state_fits_other_numbers_of_ranks(before: int, after: int) -> None:
    method = "topk:momentum=0.9"
    state = run(before, trained, method)[0]
    assert state["ranks"] == before
    held = run(after, continues, state, method)
    for kind in ("residual", "momentum"):
        for name in state["rank 0"][kind]:
            old = sum(state[f"rank {rank}"][kind][name] for rank in range(before))
            assert old.any()
            new = sum(theirs[f"rank {rank}"][kind][name] for rank, theirs in enumerate(held))
            torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-7)


def refused(rank: int) -> "list[tuple[str, str]]":
    """Bad states on rank 1 only: every rank must hear of it, and nothing is loaded."""
    model, ddp, sync = _start("topk")
    train(rank, ddp, range(2))
    good = sync.state_dict()
    name, entry = "0.weight", good[f"rank {rank}"]
    residual = entry["residual"]

    def having(residual: "dict[str, Any]") -> "dict[str, Any]":
        return {**good, f"rank {rank}": {**entry, "residual": residual}}

    bad: "list[Any]" = [
        having({f"other.{key}": values for key, values in residual.items()}),
        {**{key: value for key, value in good.items() if not key.startswith("rank ")}, "rank 0": entry},
        having({**residual, name: torch.full((32, 8), float("nan"))}),
        having({**residual, name: torch.zeros(3)}),
        having({key: values for key, values in residual.items() if key != name}),
        {**good, f"rank {rank}": {key: value for key, value in entry.items() if key != "selectors"}},
        {**good, "step": "three"},
        having({**residual, name: "text"}),
        {"weights": 1},
        "a text",
        None,
        [],
        [good, good],
        {**good, "step": 7},
    ]
    said = []
    for state in bad:
        try:
            sync.load_state_dict(state if rank == 1 else good)
        except Exception as error:
            said.append((type(error).__name__, str(error)))
    after = sync.state_dict()
    assert after["step"] == good["step"]
    assert all(torch.equal(values, residual[key]) for key, values in after[f"rank {rank}"]["residual"].items())
    train(rank, ddp, range(2, 3))
    return said


def test_states_that_do_not_fit_are_refused_on_every_rank() -> None:
    words = ["other.0.bias", "rank 1 of 2", "0.weight", "(3,)", "0.weight", "selectors", "step", "0.weight", "format"]
    words += ["str", "NoneType", "no entry", "[1, 1]"]
    for said in run(2, refused):
        kinds, texts = [kind for kind, _ in said], [text for _, text in said]
        assert kinds == ["BadState"] * 13 + ["RanksDisagree"], said
        for word, text in zip(words, texts):
            assert word in text, (word, text)
        assert "7" in texts[-1] and "2" in texts[-1]


def other_method(rank: int) -> str:
    model, ddp, sync = _start("topk")
    train(rank, ddp, range(2))
    saved = sync.state_dict()
    _, ddp, redsync = _start("redsync")
    redsync.load_state_dict(saved)
    train(rank, ddp, range(2, 4))
    _, ddp, corrected = _start("dgc:momentum=0.9")
    try:
        corrected.load_state_dict(saved)
    except thinwire.BadState as error:
        return str(error)
    return "loaded"


def test_a_state_of_another_method() -> None:
    assert all("momentum" in said for said in run(2, other_method))


def unnamed(rank: int) -> None:
    """A hook's state that knows no names yet loads as well."""

    def start() -> "tuple[Any, Any, Any]":
        model = mlp()
        ddp = DistributedDataParallel(model)
        state = tw.HookState(None, "topk", density=0.05)
        ddp.register_comm_hook(state, tw.hook)
        return model, ddp, state

    model, ddp, state = start()
    train(rank, ddp, range(4))
    saved, weights = state.state_dict(), {name: values.clone() for name, values in model.state_dict().items()}
    assert set(saved[f"rank {rank}"]["residual"]) == {f"parameter {number}" for number in range(6)}
    train(rank, ddp, range(4, 8))
    expected = checksum(model)
    model, ddp, state = start()
    model.load_state_dict(weights)
    state.load_state_dict(saved)
    train(rank, ddp, range(4, 8))
    assert checksum(model) == expected


def test_a_state_without_names() -> None:
    run(2, unnamed)


def through_empty_parameters(rank: int, form: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    model.register_parameter("nothing", nn.Parameter(torch.empty(0, 4)))
    model.register_parameter("none", nn.Parameter(torch.empty(0)))
    if form == "ddp":
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        sync: Any = tw.compress(ddp, "topk", density=0.05)
        sync.load_state_dict(through_a_file(sync.state_dict()))
        train(rank, ddp, range(3))
        saved = through_a_file(sync.state_dict())
        sync.load_state_dict(saved)
        train(rank, ddp, range(3, 5))
    else:
        sync = tw.Synchronizer(model.named_parameters(), "topk", density=0.05)
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, rank + step + 1.0)
            sync.synchronize()
            saved = through_a_file(sync.state_dict())
            sync.load_state_dict(saved)
    assert "nothing" not in saved[f"rank {rank}"]["residual"]
    assert saved[f"rank {rank}"]["residual"]["1.weight"].any()
    # Nor where all that a rank trains is empty.
    only = tw.Synchronizer([("none", nn.Parameter(torch.empty(0)))], "topk")
    only.synchronize()
    only.load_state_dict(through_a_file(only.state_dict()))
    only.synchronize()


@pytest.mark.parametrize("form", ["ddp", "loop"])
def test_parameters_without_elements(form: str) -> None:
    run(2, through_empty_parameters, form)


def wrapped(rank: int) -> None:
    """The state of a compiled model fits a plain one, and the other way round."""

    def start(how: str) -> "tuple[Any, Any]":
        model: Any = mlp()
        if how == "compiled":
            model = torch.compile(model, backend="eager")
        ddp: Any = DistributedDataParallel(model)
        if how == "loop over ddp":
            return ddp, tw.Synchronizer(ddp.named_parameters(), "topk", **everything("topk"))
        if how == "compiled inside":
            ddp.module[2] = torch.compile(ddp.module[2], backend="eager")
        return ddp, tw.compress(ddp, "topk", **everything("topk"))

    states = {}
    for how in ("plain", "compiled", "compiled inside", "loop over ddp"):
        ddp, sync = start(how)
        train(rank, ddp, range(3), each=(lambda _: sync.synchronize()) if how == "loop over ddp" else None)
        states[how] = sync.state_dict()
    names = set(states["plain"][f"rank {rank}"]["residual"])
    assert names == {f"{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")}
    for how, state in states.items():
        assert set(state[f"rank {rank}"]["residual"]) == names, how
        start("compiled" if how == "plain" else "plain")[1].load_state_dict(state)
    # One that was saved before names were brought into one form.
    entry = states["plain"][f"rank {rank}"]
    old = {**entry, "residual": {f"_orig_mod.{name}": values for name, values in entry["residual"].items()}}
    _, sync = start("plain")
    sync.load_state_dict({**states["plain"], f"rank {rank}": old})
    assert all(torch.equal(values, entry["residual"][name]) for name, values in sync.residual().items())


def test_names_are_those_of_the_plain_model() -> None:
    run(2, wrapped)


class OwnModule(nn.Module):
    """A part of it is called as DDP calls all of a model, and another part is not compressed."""

    def __init__(self, other: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.module = nn.Linear(8, 4)
        self.head = nn.Linear(4, 4, dtype=torch.float64 if other == "float64" else None)
        self.head.requires_grad_(other != "frozen")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.module(x)
        return self.head(x.to(self.head.weight.dtype)).float()


def parts_called_module(rank: int, other: str) -> None:
    for steps in (0, 2):
        ddp = DistributedDataParallel(OwnModule(other))
        sync = tw.compress(ddp, "topk", **everything("topk"))
        train(rank, ddp, range(2))
        kept = sync.residual()
        assert any(values.any() for values in kept.values())
        fresh = DistributedDataParallel(OwnModule(other))
        other_sync = tw.compress(fresh, "topk", **everything("topk"))
        train(rank, fresh, range(steps))
        other_sync.load_state_dict(through_a_file(sync.state_dict()))
        assert {name: values.tolist() for name, values in other_sync.residual().items()} == {
            name: values.tolist() for name, values in kept.items()
        }


@pytest.mark.parametrize("other", ["trained", "frozen", "float64"])
def test_a_part_called_module(other: str) -> None:
    run(2, parts_called_module, other)


def not_strict(rank: int) -> None:
    _, ddp, sync = _start("topk")
    train(rank, ddp, range(3))
    saved = sync.state_dict()
    kept = saved[f"rank {rank}"]["residual"]
    more = nn.Sequential(*mlp(), nn.Linear(4, 4))
    del more[0]
    for steps in (0, 2):
        sync = tw.Synchronizer(more.named_parameters(), "topk", **everything("topk"))
        for _ in range(steps):
            sync.synchronize()
        with pytest.raises(thinwire.BadState, match="another model"):
            sync.load_state_dict(saved)
        renamed = {f"{int(name[0]) - 1}{name[1:]}": values for name, values in kept.items()}
        entry = {**saved[f"rank {rank}"], "residual": renamed}
        missing, unexpected = sync.load_state_dict({**saved, f"rank {rank}": entry}, strict=False)
        assert missing == ["4.bias", "4.weight"], missing
        assert unexpected == ["-1.bias", "-1.weight"], unexpected
        found = sync.residual()
        assert torch.equal(found["1.weight"], kept["2.weight"]) and not found["4.weight"].any()
        sync.synchronize()


def test_not_strict() -> None:
    run(2, not_strict)


def not_strict_before_names(rank: int, strict: bool) -> str:
    """The parameters are known in the first step only."""
    _, ddp, sync = _start("topk")
    train(rank, ddp, range(3))
    saved = sync.state_dict()
    ddp = DistributedDataParallel(mlp())
    nameless = tw.HookState(None, "topk", **everything("topk"))
    ddp.register_comm_hook(nameless, tw.hook)
    nameless.load_state_dict(saved, strict=strict)
    try:
        train(rank, ddp, range(2))
    except thinwire.BadState as error:
        return str(error)
    assert set(nameless.residual()) == {f"parameter {number}" for number in range(6)}
    return f"step {nameless.state_dict()['step']}"


def test_not_strict_before_the_parameters_are_known() -> None:
    assert run(2, not_strict_before_names, False) == ["step 5"] * 2
    assert all("another model" in said for said in harm(2, not_strict_before_names, True))


def first_format(rank: int) -> None:
    """States as they were before ranks had entries."""
    model, ddp, sync = _start("dgc:momentum=0.9")
    train(rank, ddp, range(3))
    saved, weights = sync.state_dict(), {name: values.clone() for name, values in model.state_dict().items()}
    train(rank, ddp, range(3, 6))
    expected, entry = checksum(model), saved[f"rank {rank}"]
    plain = {name: saved[name] for name in ("method", "step", "epoch", "ranks")}
    old = {"format": 1, **plain, "rank": rank, "selectors": json.loads(entry["selectors"])}
    old |= {kind: entry[kind] for kind in ("residual", "momentum")}
    everybody: "list[Any]" = [None] * 2
    torch.distributed.all_gather_object(everybody, old)
    for given in (old, everybody):
        model, ddp, sync = _start("dgc:momentum=0.9")
        model.load_state_dict(weights)
        sync.load_state_dict(given)
        train(rank, ddp, range(3, 6))
        assert checksum(model) == expected
    # It may lack the residual only if nothing was kept, as it was with dense.
    with pytest.raises(thinwire.BadState, match="residual of '0.bias'"):
        sync.load_state_dict({**old, "residual": {}, "momentum": {}})
    sync.load_state_dict({**old, "residual": {}, "momentum": {}, "method": "dense"})


def test_states_of_the_first_format_are_read() -> None:
    run(2, first_format)
