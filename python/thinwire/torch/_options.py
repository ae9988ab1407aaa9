"""The arguments of :func:`thinwire.torch.compress` that do not belong to a method, checked."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Optional, Union

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler

from thinwire import _native
from thinwire._method import Value, method_text, methods
from thinwire.errors import BadArgument
from thinwire.torch._adamw import AdamW
from thinwire.torch._optimizer import is_sgd

#: Safe with any optimiser.
DEFAULT_METHOD = "quantized"
#: Of methods that send a part of the gradient.
DEFAULT_DENSITY = 0.01
#: Of sparse methods under thinwire.torch.AdamW.
WARMUP = "quantized/15%"

#: How far the host may run ahead of the GPU: not at all, to the end of the optimiser's step, or into the next step.
RunAhead = Union[bool, Literal["forward"]]
FORWARD: RunAhead = "forward"

#: Whether every rank counts the same, or by its samples.
Mean = Literal["ranks", "samples"]

Timeout = Union[timedelta, float, None]
#: In seconds. torch counts milliseconds, and adds them to a clock of 64-bit nanoseconds.
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 0.001, 1_000_000_000


@dataclass(frozen=True)
class Options:
    """See :func:`thinwire.torch.compress`."""

    process_group: Optional[dist.ProcessGroup] = None
    timeout: Timeout = None
    scaler: Optional[GradScaler] = None
    optimizer: Optional[torch.optim.Optimizer] = None
    mean: Mean = "ranks"
    steps_per_epoch: Optional[float] = None
    total_steps: Optional[int] = None
    threads: Optional[int] = None
    check_replicas_every: int = 100
    run_ahead: RunAhead = False

    def __post_init__(self) -> None:
        if self.mean not in ("ranks", "samples"):
            raise BadArgument(f"mean is {self.mean!r}; expected 'ranks' or 'samples'")
        self._check_numbers()
        if self.process_group is not None and not isinstance(self.process_group, dist.ProcessGroup):
            raise BadArgument(
                f"process_group is {self.process_group!r}; expected a ProcessGroup that this rank is in, of"
                " torch.distributed"
            )
        if self.run_ahead not in (False, True, FORWARD):
            raise BadArgument(f"run_ahead is {self.run_ahead!r}; expected False, True or {FORWARD!r}")
        if self.scaler is not None and not (hasattr(self.scaler, "is_enabled") and hasattr(self.scaler, "get_scale")):
            raise BadArgument(f"scaler is {self.scaler!r}; expected a torch.amp.GradScaler")
        if self.optimizer is not None and not hasattr(self.optimizer, "param_groups"):
            raise BadArgument(f"optimizer is {self.optimizer!r}; expected a torch.optim.Optimizer")
        if self.run_ahead and isinstance(self.optimizer, AdamW):
            raise BadArgument(
                f"run_ahead is {self.run_ahead!r}, and the optimizer is thinwire.torch.AdamW; expected one of them: it"
                " needs to know in its step what this one has sent"
            )
        if self.run_ahead and self.active_scaler is not None:
            raise BadArgument(
                f"run_ahead is {self.run_ahead!r}, and a scaler is given; expected one of them: a scaler needs to know"
                " before the optimiser's step whether this one is skipped"
            )

    def _check_numbers(self) -> None:
        counts = {"threads": self.threads, "total_steps": self.total_steps}
        for name, value in {"steps_per_epoch": self.steps_per_epoch, **counts}.items():
            if value is not None and not (_is_number(value) and 0 < value < math.inf):
                raise BadArgument(f"{name} is {value!r}; expected a number above 0")
        for name, value in counts.items():
            if value is not None and value != int(value):
                raise BadArgument(f"{name} is {value!r}; expected a whole number above 0")
        every = self.check_replicas_every
        if not (_is_number(every) and 0 <= every < math.inf and every == int(every)):
            raise BadArgument(f"check_replicas_every is {every!r}; expected 0 (never) or a whole number above it")
        seconds = self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout
        if seconds is not None and not (_is_number(seconds) and SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT):
            raise BadArgument(
                f"timeout is {self.timeout!r}; expected a timedelta or seconds, from {SHORTEST_TIMEOUT} to"
                f" {LONGEST_TIMEOUT:,}"
            )

    @property
    def deadline(self) -> Optional[timedelta]:
        """The timeout, if one was given."""
        if self.timeout is None or isinstance(self.timeout, timedelta):
            return self.timeout
        return timedelta(seconds=float(self.timeout))

    @property
    def active_scaler(self) -> Optional[GradScaler]:
        """The scaler, unless it is disabled: then it neither scales nor skips."""
        return self.scaler if self.scaler is not None and self.scaler.is_enabled() else None


def _is_number(value: Any) -> bool:
    """Whether this is a number. A bool is not, though Python has it as one."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def method_with_defaults(
    method: Optional[str], density: Optional[float], parameters: "dict[str, Value]", options: Options
) -> str:
    """The method as one text. If no density is given it is 1 %, whatever the method: the 0.1 % that some methods
    have as their own default needs a warm-up, without which a short training loses accuracy. ``auto`` may send a part
    of the gradient if the optimiser is SGD."""
    if method is None and density is not None:
        raise BadArgument(
            f"density is {density!r}, and the default method sends everything, in 4 bits; give a method that sends a"
            " part of the gradient, such as method='topk', or leave density out"
        )
    method = DEFAULT_METHOD if method is None else method
    given = {*_names_in(method), *parameters} if isinstance(method, str) else set()
    if density is None and isinstance(method, str) and "density" not in given:
        known = methods().get(method.partition(":")[0].strip())
        if known is not None and "density" in known.parameters:
            density = DEFAULT_DENSITY
    text = method_text(method, density, **parameters)
    # The candidates that are the default are not in the text, though somebody may have named them.
    if text.partition(":")[0] == "auto" and is_sgd(options.optimizer) and "methods" not in given:
        text = _native.for_sgd(text)
    return _with_local_momentum(text, options.optimizer, given) if isinstance(options.optimizer, AdamW) else text


def _names_in(method: str) -> "list[str]":
    """The parameters that a method is given in its text."""
    return [entry.partition("=")[0].strip() for entry in method.partition(":")[2].split(",")]


def _with_local_momentum(method: str, optimizer: AdamW, given: "set[str]") -> str:
    """A sparse method with the momentum of this optimiser, and a quantised warm-up, but for what was `given`."""
    name = method.partition(":")[0]
    known, sparse = methods()[name].parameters, _native.describe(method)["sparse"]
    if name == "auto" and sparse:
        raise BadArgument(
            f"{method} with thinwire.torch.AdamW, whose momentum auto can't take to its candidates; expected a sparse"
            " method by its name, such as method='topk', or candidates that send everything"
        )
    if "masking" not in known or not sparse:
        return method
    ours: "dict[str, Value]" = {"momentum": optimizer.momentum, "masking": False, "warmup": WARMUP}
    return method_text(method, None, **{name: value for name, value in ours.items() if name not in given})
