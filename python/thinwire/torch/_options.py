"""What :func:`thinwire.torch.compress` and the others can be told beyond the method, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Optional, Union

import torch

from thinwire._method import Value, method_text, methods
from thinwire.errors import BadArgument

DEFAULT_METHOD, DEFAULT_DENSITY = "redsync", 0.01

#: How far the host may run ahead of the GPU: not at all, to the end of an optimiser's step, or into the next step.
RunAhead = Union[bool, Literal["forward"]]
FORWARD: RunAhead = "forward"

Timeout = Union[timedelta, float, None]


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`thinwire.torch.compress` that do not belong to a method."""

    process_group: Optional[Any] = None
    timeout: Timeout = None
    scaler: Optional[Any] = None
    optimizer: Optional[torch.optim.Optimizer] = None
    mean: str = "ranks"
    steps_per_epoch: Optional[float] = None
    threads: Optional[int] = None
    check_replicas_every: int = 100
    run_ahead: RunAhead = False

    def __post_init__(self) -> None:
        if self.mean not in ("ranks", "samples"):
            raise BadArgument(f"mean is {self.mean!r}; expected 'ranks' or 'samples'")
        seconds = self.deadline.total_seconds() if self.deadline else self.timeout
        for name, value in (("steps_per_epoch", self.steps_per_epoch), ("timeout", seconds), ("threads", self.threads)):
            if value is not None and not (isinstance(value, (int, float)) and value > 0):
                raise BadArgument(f"{name} is {value!r}; expected a number above 0")
        if not (isinstance(self.check_replicas_every, int) and self.check_replicas_every >= 0):
            raise BadArgument(f"check_replicas_every is {self.check_replicas_every!r}; expected 0 (never) or more")
        if self.run_ahead not in (False, True, FORWARD):
            raise BadArgument(f"run_ahead is {self.run_ahead!r}; expected False, True or {FORWARD!r}")
        if self.scaler is not None and not (hasattr(self.scaler, "is_enabled") and hasattr(self.scaler, "get_scale")):
            raise BadArgument(f"scaler is {self.scaler!r}; expected a torch.amp.GradScaler")
        if self.optimizer is not None and not hasattr(self.optimizer, "param_groups"):
            raise BadArgument(f"optimizer is {self.optimizer!r}; expected a torch.optim.Optimizer")
        if self.run_ahead and self.active_scaler is not None:
            raise BadArgument(
                f"run_ahead is {self.run_ahead!r}, and a scaler is given; expected one of them: a scaler needs to know"
                " before the optimiser's step whether this one is skipped"
            )

    @property
    def deadline(self) -> Optional[timedelta]:
        """The timeout, if one was given."""
        if isinstance(self.timeout, (int, float)) and self.timeout > 0:
            return timedelta(seconds=self.timeout)
        return self.timeout if isinstance(self.timeout, timedelta) else None

    @property
    def active_scaler(self) -> Optional[Any]:
        """The scaler; one that is switched off neither scales nor skips."""
        return self.scaler if self.scaler is not None and self.scaler.is_enabled() else None


def method_with_defaults(method: Optional[str], density: Optional[float], parameters: "dict[str, Value]") -> str:
    """The method as one text. Where nothing sets a density it is 1 %, whatever the method: some methods' own 0.1 %
    needs a warm-up, without which a short training ends behind."""
    method = DEFAULT_METHOD if method is None else method
    if density is None and isinstance(method, str) and "density" not in parameters:
        name, _, given = method.partition(":")
        known = methods().get(name.strip())
        given_names = [entry.partition("=")[0].strip() for entry in given.split(",")]
        if known is not None and "density" in known.parameters and "density" not in given_names:
            density = DEFAULT_DENSITY
    return method_text(method, density, **parameters)
