"""States: by parameter name, for the same bits again, for other buckets and other numbers of ranks."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from ranks import run
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
        for name, values in sync.state_dict()["residual"].items():
            assert torch.equal(values, saved["thinwire"]["residual"][name]), f"{method} {name}"


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
    mine, other = sync.state_dict()["residual"], plain.state_dict()["residual"]
    torch.testing.assert_close(mine["weight"], other["weight"], rtol=1e-4, atol=1e-6)
    plain.load_state_dict(sync.state_dict())
    assert torch.equal(plain.state_dict()["residual"]["weight"], mine["weight"])


def test_a_residual_has_the_shape_of_its_parameter() -> None:
    run(2, shaped)


def trained(rank: int, method: str) -> "list[Any] | None":
    model, ddp, sync = _start(method)
    before = sync.state_dict()
    assert before["step"] == 0 and before["residual"] == {}
    train(rank, ddp, range(5))
    everybody = sync.state_dict(all_ranks=True)
    assert (everybody is None) == (rank != 0)
    sync.load_state_dict(before)
    return through_a_file(everybody)


def continues(rank: int, states: "list[Any]", method: str) -> Any:
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
    states = run(before, trained, method)[0]
    assert [state["rank"] for state in states] == list(range(before))
    held = run(after, continues, states, method)
    for kind in ("residual", "momentum"):
        for name in states[0][kind]:
            old = sum(state[kind][name] for state in states)
            assert old.any()
            torch.testing.assert_close(sum(state[kind][name] for state in held), old, rtol=1e-6, atol=1e-7)


def refused(rank: int) -> "list[tuple[str, str]]":
    """Bad states on rank 1 only: every rank must hear of it, and nothing is loaded."""
    model, ddp, sync = _start("topk")
    train(rank, ddp, range(2))
    good = sync.state_dict()
    name = "0.weight"
    other = {**good, "residual": {f"other.{key}": values for key, values in good["residual"].items()}}
    nan = {**good["residual"], name: torch.full((32, 8), float("nan"))}
    short = {**good["residual"], name: torch.zeros(3)}
    less = {key: values for key, values in good["residual"].items() if key != name}
    bad: "list[Any]" = [
        other,
        {**good, "rank": 0},
        {**good, "residual": nan},
        {**good, "residual": short},
        {**good, "residual": less},
        {key: value for key, value in good.items() if key != "selectors"},
        {**good, "step": "three"},
        {**good, "residual": {**good["residual"], name: "text"}},
        {"weights": 1},
        "a text",
        None,
        [],
        [good],
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
    assert all(torch.equal(values, good["residual"][key]) for key, values in after["residual"].items())
    train(rank, ddp, range(2, 3))
    return said


def test_states_that_do_not_fit_are_refused_on_every_rank() -> None:
    words = ["other.0.bias", "rank 0 of 2", "0.weight", "(3,)", "0.weight", "selectors", "step", "0.weight", "format"]
    words += ["str", "NoneType", "ranks", "ranks"]
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
    assert set(saved["residual"]) == {f"parameter {number}" for number in range(6)}
    train(rank, ddp, range(4, 8))
    expected = checksum(model)
    model, ddp, state = start()
    model.load_state_dict(weights)
    state.load_state_dict(saved)
    train(rank, ddp, range(4, 8))
    assert checksum(model) == expected


def test_a_state_without_names() -> None:
    run(2, unnamed)
