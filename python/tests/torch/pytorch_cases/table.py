"""What is trained in each case: a model, what DDP is told, and how a step's loss comes about.

Each is run twice by :mod:`compared`: with everything sent, where every gradient has to be plain DDP's, and at 5 %,
where ranks have to stay equal and nothing may be lost.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import models
import torch
from models import total
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def draw(model: nn.Module, rank: int, step: int, *shape: int) -> torch.Tensor:
    """Inputs that differ between ranks and steps, where the model is."""
    generator = torch.Generator().manual_seed(1_000_003 * rank + 17 * step + 1)
    return torch.randn(*(shape or (6, 8)), generator=generator).to(next(model.parameters()).device)


def square(output: torch.Tensor) -> torch.Tensor:
    return output.square().sum()


def _loss(model: Any, rank: int, step: int) -> torch.Tensor:
    return square(model(draw(model, rank, step)))


@dataclass(frozen=True)
class Case:
    """One row."""

    model: "Callable[[], nn.Module]"
    #: Of DDP.
    options: "dict[str, Any]" = field(default_factory=dict)
    loss: "Callable[[Any, int, int], torch.Tensor]" = _loss
    #: Where a step is more than the backward pass of one loss.
    backward: "Optional[Callable[[Any, int, int], None]]" = None
    #: Done to the module before, and to the DDP model after it is wrapped.
    before: "Optional[Callable[[nn.Module], None]]" = None
    after: "Optional[Callable[[DistributedDataParallel], None]]" = None
    #: Parameters of the module that are none of DDP's.
    alone: "tuple[str, ...]" = ()
    to_none: bool = True
    #: Relative tolerance where everything is sent.
    close: float = 1e-5
    #: Whether compression has anything to keep back.
    compresses: bool = True
    steps: int = 5

    def step(self, model: Any, rank: int, step: int) -> None:
        if self.backward is not None:
            self.backward(model, rank, step)
        else:
            self.loss(model, rank, step).backward()


VIEW = {"gradient_as_bucket_view": True}
STATIC = {"static_graph": True}
UNUSED = {"find_unused_parameters": True}
#: Several buckets.
SMALL = {"bucket_cap_mb": 0.0004}


# ---- losses ----


def _inputs(kind: str) -> "Callable[[Any, int, int], torch.Tensor]":
    def loss(model: Any, rank: int, step: int) -> torch.Tensor:
        one, two = draw(model, rank, 2 * step), draw(model, rank, 2 * step + 1)
        given: Any = {
            "tuple": (one, two),
            "list": [one, two],
            "dict": {"a": one, "b": two},
            "namedtuple": models.Pair(one, two),
            "object": models.Carrier(one),
        }[kind]
        return square(model(given))

    return loss


def _nested(kind: str) -> "Callable[[Any, int, int], torch.Tensor]":
    return lambda model, rank, step: total(model(draw(model, rank, step), kind))


def _detached(model: Any, rank: int, step: int) -> torch.Tensor:
    still, moving = model(draw(model, rank, step))
    assert not still.requires_grad
    return square(still + moving)


def _new_tensors(model: Any, rank: int, step: int) -> torch.Tensor:
    _, before = model(draw(model, rank, step), None)
    output, _ = model(draw(model, rank, step), {"made": before["made"]})
    return square(output)


def _twice(model: Any, rank: int, step: int) -> torch.Tensor:
    return square(model(draw(model, rank, 2 * step))) + square(model(draw(model, rank, 2 * step + 1)))


def _dataclass(model: Any, rank: int, step: int) -> torch.Tensor:
    output = model(draw(model, rank, step))
    return total(output.others) + (0 if output.first is None else square(output.first))


def _indices(model: Any, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return square(model(torch.randint(0, 16, (6, 3), generator=generator).to(next(model.parameters()).device)))


def _shape(*shape: int) -> "Callable[[Any, int, int], torch.Tensor]":
    return lambda model, rank, step: square(model(draw(model, rank, step, *shape)).float())


def _used(choose: "Callable[[int, int], tuple[int, ...]]") -> "Callable[[Any, int, int], torch.Tensor]":
    """With layers chosen by rank and step."""
    return lambda model, rank, step: total(model(draw(model, rank, step), choose(rank, step)))


def _output_unused(get: "Callable[[Any], Any]") -> "Callable[[Any, int, int], torch.Tensor]":
    """In the first two steps both outputs count, then the second alone."""

    def loss(model: Any, rank: int, step: int) -> torch.Tensor:
        a, b = get(model(draw(model, rank, step)))
        return square(a @ b.T) if step < 2 else square(b)

    return loss


# ---- steps ----


def _create_graph(model: Any, rank: int, step: int) -> None:
    _loss(model, rank, step).backward(create_graph=True)
    assert all(p.requires_grad for p in model.parameters() if p.is_floating_point())


def _accumulated(loss: "Callable[[Any, int, int], torch.Tensor]") -> "Callable[[Any, int, int], None]":
    def backward(model: Any, rank: int, step: int) -> None:
        # Nothing is accumulated by a pass without gradients.
        with torch.no_grad(), model.no_sync():
            loss(model, rank, step)
        for part in range(3):
            with model.no_sync() if part < 2 else contextlib.nullcontext():
                loss(model, rank, 3 * step + part).backward()

    return backward


def _ignored(model: Any, rank: int, step: int) -> None:
    """Outputs that nobody uses, before some that are."""
    for number in range(2):
        model(draw(model, rank, 100 + number))
    _loss(model, rank, step).backward()


def _third_in_turn(model: Any, rank: int, step: int) -> torch.Tensor:
    return square(model(draw(model, rank, step), step > 0))


def _undefined(model: Any, rank: int, step: int) -> None:
    output = model(draw(model, rank, step)).sum()
    # The gradients of a step are undefined.
    (torch._C._functions.UndefinedGrad()(output) if step == 0 else output).backward()


def _functional(model: Any, rank: int, step: int) -> None:
    """A call with other parameters leaves those of the model, and the hook, alone."""
    others = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in model.named_parameters()}
    square(torch.func.functional_call(model, others, draw(model, rank, step))).backward()
    assert all(p.grad is not None for p in others.values() if p.requires_grad)
    assert all(p.grad is None for p in model.parameters())


# ---- what is done to models ----


def _ignore(*names: str) -> "Callable[[nn.Module], None]":
    return lambda module: DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, list(names))


def _eval_once(ddp: DistributedDataParallel) -> None:
    ddp.eval()
    with torch.no_grad():
        ddp(draw(ddp, 0, 0))
    ddp.train()


def _frozen(module: nn.Module) -> None:
    module.get_parameter("second.bias").requires_grad_(False)


#: Which layers are used: those that are not are buckets that DDP skips.
SKIPPED: "dict[str, Callable[[int, int], tuple[int, ...]]]" = {
    "the last": lambda rank, step: (1, 2, 3),
    "in between": lambda rank, step: (0, 3),
    "the first": lambda rank, step: (0, 1),
    "all but one": lambda rank, step: (2,),
    "in turn": lambda rank, step: (step % 4,),
    "not in all steps": lambda rank, step: (0, 1, 2, 3) if step % 2 else (0, 3),
    "not on all ranks": lambda rank, step: (0, 3) if rank else (1, 3),
}

CASES: "dict[str, Case]" = {
    # Forward and backward passes of all kinds.
    "plain": Case(models.Net, SMALL),
    "bucket views": Case(models.Net, {**SMALL, **VIEW}),
    "gradients set to zero": Case(models.Net, SMALL, to_none=False),
    "bucket views set to zero": Case(models.Net, {**SMALL, **VIEW}, to_none=False),
    "one bucket": Case(models.Net),
    "static graph": Case(models.Net, {**SMALL, **STATIC}),
    "static graph, bucket views": Case(models.Net, {**SMALL, **STATIC, **VIEW}),
    "static graph, set twice": Case(models.Net, STATIC, after=lambda ddp: ddp._set_static_graph()),
    "static graph, two forward passes": Case(models.Net, STATIC, loss=_twice),
    "two forward passes with buffers": Case(models.Normalized, {"broadcast_buffers": False}, loss=_twice),
    "a list of bucket sizes": Case(models.Net, {"bucket_cap_mb_list": [0.0004, 0.001]}),
    "no output features": Case(models.NoOutput),
    "create_graph": Case(lambda: nn.Linear(8, 4, bias=False), backward=_create_graph),
    "module hooks": Case(models.with_hooks),
    "frozen": Case(models.Net, SMALL, before=_frozen),
    "evaluated before": Case(models.Normalized, after=_eval_once),
    "parameters ignored": Case(models.Net, before=_ignore("third.weight"), alone=("third.weight",)),
    "parameters ignored, static graph": Case(
        models.Net, STATIC, before=_ignore("third.weight"), alone=("third.weight",)
    ),
    "parameters ignored, unused": Case(
        models.Net, {**UNUSED, "broadcast_buffers": False}, before=_ignore("third.weight"), alone=("third.weight",)
    ),
    "functional call": Case(models.Buffered, backward=_functional, compresses=False),
    **{f"inputs: {kind}": Case(models.Inputs, loss=_inputs(kind)) for kind in ("tuple", "list", "dict", "namedtuple")},
    "inputs: object": Case(models.Inputs, loss=_inputs("object")),
    **{f"outputs: {kind}": Case(models.Nested, loss=_nested(kind)) for kind in ("tuple", "list", "dict")},
    **{
        f"outputs: {kind}, static graph": Case(models.Nested, STATIC, _nested(kind))
        for kind in ("tuple", "list", "dict")
    },
    **{
        f"a detached output, {unused=}, {static=}": Case(
            models.DetachedOutput, {"find_unused_parameters": unused, "static_graph": static}, _detached
        )
        for unused in (False, True)
        for static in (False, True)
    },
    "new tensors in forward": Case(models.NewTensors, {"broadcast_buffers": False}, _new_tensors),
    "new tensors in forward, static graph": Case(models.NewTensors, STATIC, _new_tensors),
    "dataclass output": Case(models.DataclassOutput, UNUSED, _dataclass),
    "dataclass output, unused": Case(lambda: models.DataclassOutput(True), UNUSED, _dataclass),
    # Recomputed layers and shared weights.
    "checkpoint": Case(models.Checkpointed),
    "checkpoint, bucket views": Case(models.Checkpointed, VIEW),
    "checkpoint, static graph": Case(models.Checkpointed, STATIC),
    "checkpoint, unused": Case(models.Checkpointed, UNUSED),
    "checkpoint, reentrant": Case(lambda: models.Checkpointed(reentrant=True)),
    "checkpoint, reentrant, static graph": Case(lambda: models.Checkpointed(reentrant=True), {**STATIC, **UNUSED}),
    "checkpoint twice": Case(lambda: models.Checkpointed(2)),
    "checkpoint twice, reentrant, static graph": Case(lambda: models.Checkpointed(2, True), {**STATIC, **VIEW}),
    "checkpoint twice, shared weights": Case(lambda: models.Checkpointed(2, True, True), STATIC),
    "checkpoint in turn": Case(models.CheckpointedInTurn, UNUSED),
    "checkpoint in turn, bucket views": Case(models.CheckpointedInTurn, {**UNUSED, **VIEW}),
    "checkpoint in turn, shared weights": Case(lambda: models.CheckpointedInTurn(shared=True), UNUSED),
    "shared weights": Case(models.Shared, VIEW),
    "shared weights, static graph": Case(models.Shared, STATIC),
    # Dtypes and layouts.
    "two dtypes": Case(models.Mixed),
    "two dtypes, one unused at first": Case(models.Mixed, UNUSED, _third_in_turn),
    "bfloat16": Case(lambda: models.Mixed(torch.bfloat16), SMALL, close=3e-2),
    "float16": Case(lambda: models.Mixed(torch.float16), VIEW, close=1e-2),
    "sparse": Case(models.Bag, loss=_indices, compresses=False),
    "sparse, bucket views": Case(models.Bag, VIEW, _indices, compresses=False),
    "sparse and dense": Case(lambda: models.Bag(True), SMALL, _indices),
    "sparse, ignored": Case(
        lambda: models.Bag(True), {}, _indices, before=_ignore("table.weight"), alone=("table.weight",)
    ),
    "complex": Case(models.Fourier, loss=_shape(2, 3, 6, 6)),
    "channels last": Case(models.convolutions, SMALL, _shape(2, 3, 6, 6)),
    "channels last, bucket views": Case(models.convolutions, {**SMALL, **VIEW}, _shape(2, 3, 6, 6)),
    "batch normalisation": Case(models.Normalized, SMALL),
    "batch normalisation, no weights": Case(lambda: models.Normalized(False)),
    # Accumulation.
    "accumulated": Case(models.Net, SMALL, backward=_accumulated(_loss)),
    "accumulated, bucket views": Case(models.Net, {**SMALL, **VIEW}, backward=_accumulated(_loss)),
    "accumulated, each rank its own layers": Case(
        models.Apart, UNUSED, backward=_accumulated(_used(lambda rank, step: ((2 * rank + step % 2) % 4,)))
    ),
    "outputs ignored": Case(models.Net, backward=_ignored),
    "outputs ignored, unused": Case(
        lambda: models.DataclassOutput(True),
        UNUSED,
        backward=lambda m, r, s: (m(draw(m, r, 100)), _dataclass(m, r, s).backward())[1],
    ),
    # Parameters that are not used, or not by all.
    "unused on all ranks": Case(models.Branches, UNUSED, _used(lambda rank, step: (0,))),
    "used on one rank each": Case(models.Apart, UNUSED, _used(lambda rank, step: (rank % 3,))),
    "used on one rank each, bucket views": Case(
        models.Apart, {**UNUSED, **VIEW}, _used(lambda rank, step: (rank % 3,))
    ),
    "used on one rank each, static graph": Case(
        models.Apart, {**UNUSED, **STATIC}, _used(lambda rank, step: (rank % 3,))
    ),
    "all used on rank 0 only": Case(models.Branches, UNUSED, _used(lambda rank, step: (0, 1) if rank == 0 else (1,))),
    "used in odd steps": Case(
        models.Branches, {**UNUSED, **SMALL}, _used(lambda rank, step: (0, 1) if step % 2 else (0,))
    ),
    "used in odd steps, bucket views": Case(
        models.Branches, {**UNUSED, **SMALL, **VIEW}, _used(lambda rank, step: (0, 1) if step % 2 else (0,))
    ),
    "used in odd steps on rank 1": Case(
        models.Branches, {**UNUSED, **SMALL}, _used(lambda rank, step: (0, 1) if step % 2 and rank == 1 else (0,))
    ),
    "another graph on rank 0": Case(
        models.Branches, {**UNUSED, **VIEW}, _used(lambda rank, step: (0, 1) if rank == 0 else (0,))
    ),
    "another graph on rank 0, static": Case(
        models.Branches, {**STATIC, **VIEW}, _used(lambda rank, step: (0,) if rank == 0 else (0, 1))
    ),
    "no layer but the trunk": Case(models.Branches, {**UNUSED, **SMALL}, _used(lambda rank, step: ())),
    "unused with two names": Case(models.SharedUnused, UNUSED),
    "unused with two names, static graph": Case(models.SharedUnused, {**UNUSED, **STATIC}),
    "an output unused": Case(models.TwoOutputs, UNUSED, _output_unused(lambda output: output)),
    "an output unused, bucket views": Case(
        models.TwoOutputs, {**UNUSED, **VIEW}, _output_unused(lambda output: output)
    ),
    "an output in a dict unused": Case(
        lambda: models.TwoOutputs(True), UNUSED, _output_unused(lambda output: output["predictions"])
    ),
    "an output in a dict unused, bucket views": Case(
        lambda: models.TwoOutputs(True), {**UNUSED, **VIEW}, _output_unused(lambda output: output["predictions"])
    ),
    "undefined gradients": Case(models.Net, UNUSED, backward=_undefined),
    **{
        f"buckets skipped: {where}": Case(
            models.Apart, {**UNUSED, **SMALL, "skip_all_reduce_unused_params": True}, _used(choose)
        )
        for where, choose in SKIPPED.items()
    },
}
