"""The state for one rank, from those of the ranks of an earlier run."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import torch

from thinwire.errors import BadState
from thinwire.torch._state import KINDS


def sources(rank: int, ranks: int, before: int, lost: "Sequence[int]") -> "list[int]":
    """The ranks of an earlier run whose residuals go to one of `ranks` ranks now.

    With as many ranks as before everyone gets its own, bit for bit. Otherwise the old ranks are dealt out in turn, and
    sums are kept: with fewer ranks a rank gets the sum of several, with more some begin with nothing.
    """
    left = [old for old in range(before) if old not in lost]
    return left[rank::ranks]


def state_of(flats: "Sequence[dict[str, Any]]", rank: int, ranks: int, lost: "Sequence[int]" = ()) -> "dict[str, Any]":
    """The flat state for one of `ranks` ranks, from those of an earlier run without the `lost` ones. An error if one is
    not there that goes to this rank."""
    if not flats:
        raise BadState("the state has no entry of any rank; it is damaged or was made by something else")
    _of_one_run(flats, lost)
    before = max(flats[0]["ranks"], 1)
    known = {flat["rank"]: flat for flat in flats}
    surplus = sorted(set(lost) & known.keys())
    if surplus:
        raise BadState(f"the ranks {surplus} are said to be lost, but the state has entries of them")
    if flats[0]["ranks"] == 0:
        # It was saved where no group was.
        return dict(flats[0], rank=rank, ranks=ranks)
    wanted = sources(rank, ranks, before, lost)
    missing = [old for old in wanted if old not in known]
    if missing:
        raise BadState(
            f"the state is of rank{'s' * (len(known) > 1)} {', '.join(map(str, sorted(known)))} of {before}, this is"
            f" rank {rank} of {ranks}, to which the residual of rank {', '.join(map(str, missing))} belongs. Every rank"
            " loads its own; or load the states of all ranks, such as state_dict(all_ranks=True) gives, which fit into"
            f" any number of ranks (torch.distributed.checkpoint reads them into blank_state_dict({before})); or go on"
            f" without the residuals of ranks that were lost: lost_ranks={missing}"
        )
    mine = [known[old] for old in wanted]
    if before == ranks and not lost:
        return dict(mine[0])
    latest = max(flats, key=lambda flat: int(flat["step"]))
    joined = dict(latest, rank=rank, ranks=ranks, selectors=mine[0]["selectors"] if mine else {})
    for kind in KINDS:
        joined[kind] = _sums([flat[kind] for flat in mine], flats[0][kind])
    return joined


def _of_one_run(flats: "Sequence[dict[str, Any]]", lost: "Sequence[int]") -> None:
    numbers = sorted(flat["rank"] for flat in flats)
    before = flats[0]["ranks"]
    if len(set(numbers)) < len(numbers) or (before and numbers[-1] >= before):
        expected = f"one of each of the {before} ranks of the run"
        raise BadState(f"the states are those of ranks {numbers}; expected {expected}")
    for flat in flats:
        # The step in which a rank was lost may have ended on some ranks and not on others.
        slack = 1 if lost else 0
        for field in ("method", "ranks", "step"):
            found, expected = flat[field], flats[0][field]
            if found != expected and not (field == "step" and abs(found - expected) <= slack):
                raise BadState(f"the states are of several runs: {field!r} is {found!r} and {expected!r}")


def _sums(layers: "Sequence[dict[str, torch.Tensor]]", like: "dict[str, torch.Tensor]") -> "dict[str, torch.Tensor]":
    names: "Iterable[str]" = set(like).union(*layers)
    return {name: _sum([of[name] for of in layers if name in of], like.get(name)) for name in names}


def _sum(tensors: "Sequence[torch.Tensor]", like: Any) -> torch.Tensor:
    if not tensors:
        return torch.zeros_like(like)
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total
