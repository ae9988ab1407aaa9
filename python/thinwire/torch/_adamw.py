"""AdamW for a sparse exchange.

A sparse exchange delivers a coordinate once in many steps, as the sum of what has gathered by then. Adam would square
that sum, and its second moment would grow far beyond that of single gradients. So the second moment is taken from the
warm-up alone, in which every element arrives in every step, and stays as it is then (as in 1-bit Adam, Tang et al.
2021, arXiv 2102.02888). The momentum moves to the ranks: each keeps its own and puts it into its residual, so what
arrives are sums of momentum.

In a step in which everything was sent this is torch.optim.AdamW. In any other:

    update = (1 - beta1) * mean / denominator, between -1 / density and 1 / density
    weight -= lr * (weight_decay * weight + update)

The denominator is the root of the second moment, as torch's AdamW has it, plus a thousandth of its mean over the
parameter. It takes the memory of the first moment, which is not needed any more. The bound is about as far as AdamW
takes an element in the steps from one arrival to the next. It matters for elements that had few gradients in the
warm-up (the embedding of a rare word), whose second moment says nothing.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional

import torch

from thinwire.errors import BadArgument

#: Of the mean of a parameter's denominators, what is added to each.
FLOOR = 1e-3


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` that keeps its loss under a sparse exchange. All arguments are the same.

    Give it to :func:`thinwire.torch.compress`, which then moves its momentum into the method and puts a quantised
    warm-up before it::

        optimizer = tw.AdamW(model.parameters(), lr=1e-3)
        sync = tw.compress(ddp, method="topk", density=0.01, optimizer=optimizer, total_steps=10_000)

    Parameters need a gradient in some step of the warm-up. ``state_dict()`` fits this class; that of
    ``torch.optim.AdamW`` can be loaded as long as the warm-up has not ended.
    """

    #: The synchronizer or hook whose means this takes.
    _source: "Optional[weakref.ref[Any]]" = None

    def attach(self, source: Any) -> None:
        """Takes the means of this ``HookState`` or ``Synchronizer``; ``compress`` calls it."""
        self._source = weakref.ref(source)

    @property
    def momentum(self) -> float:
        """The first beta, which must be the same for all parameters."""
        betas = {float(group["betas"][0]) for group in self.param_groups}
        if len(betas) > 1:
            raise BadArgument(
                f"the parameter groups have the first betas {sorted(betas)}; expected one for all: the momentum is"
                " kept with the residual"
            )
        return betas.pop()

    def __getstate__(self) -> "dict[str, Any]":
        state: "dict[str, Any]" = dict(super().__getstate__())
        state.pop("_source", None)
        return state

    def step(self, closure: "Optional[Callable[[], Any]]" = None) -> Any:
        """One step, with the second moment taken along if everything was sent."""
        source = None if self._source is None else self._source()
        density = 1.0 if source is None else source.last_density
        if density >= 1.0:
            self._thaw()
            return _of_torch(self, closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        overflow = getattr(self, "found_inf", None)
        if overflow is None or not overflow.item():
            self._step_late(density)
        return loss

    @torch.no_grad()
    def _step_late(self, density: float) -> None:
        """A step with means that are sums of momentum, some of them of many steps."""
        scale = getattr(self, "grad_scale", None)
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            weights = [_real(parameter) for parameter in parameters]
            means = [_real(parameter.grad) for parameter in parameters]
            denominators = [self._denominator(parameter, group) for parameter in parameters]
            lr, sign = float(group["lr"]), -1.0 if group["maximize"] else 1.0
            size = sign * (1.0 - float(group["betas"][0]))
            if scale is not None:
                size /= float(scale)
            updates = torch._foreach_div(means, denominators)
            torch._foreach_mul_(updates, size)
            torch._foreach_clamp_max_(updates, 1.0 / density)
            torch._foreach_clamp_min_(updates, -1.0 / density)
            torch._foreach_mul_(weights, 1.0 - lr * group["weight_decay"])
            torch._foreach_add_(weights, updates, alpha=-lr)

    def _denominator(self, parameter: torch.Tensor, group: "dict[str, Any]") -> torch.Tensor:
        """Made at the end of the warm-up, in the place of the first moment."""
        state = self.state[parameter]
        if "denominator" not in state:
            if "exp_avg_sq" not in state:
                raise BadArgument(
                    f"a parameter of shape {list(parameter.shape)} has no second moment: it had no gradient in a step"
                    " in which everything was sent. Give compress() this optimizer and a warm-up in which all"
                    " parameters get gradients"
                )
            square = _real(state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"])
            denominator = _real(state.pop("exp_avg"))
            torch.sqrt(square, out=denominator)
            denominator /= float(1.0 - float(group["betas"][1]) ** float(state["step"])) ** 0.5
            denominator += FLOOR * denominator.mean() + group["eps"]
            state["denominator"] = denominator
        return state["denominator"]  # type: ignore[no-any-return]

    def _thaw(self) -> None:
        """Everything is sent again: the first moment begins anew."""
        for parameter, state in self.state.items():
            if "denominator" in state:
                moment = state.pop("denominator").zero_()
                state["exp_avg"] = torch.view_as_complex(moment) if parameter.is_complex() else moment


def _of_torch(optimizer: AdamW, closure: Any) -> Any:
    """torch's own step, without its hooks, which those of this class's step stand for."""
    step = torch.optim.AdamW.step
    return getattr(step, "__wrapped__", step)(optimizer, closure) if getattr(step, "hooked", False) else step(
        optimizer, closure
    )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
