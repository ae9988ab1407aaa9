"""Gradients of loops without DistributedDataParallel."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Union

import torch

from thinwire.errors import BadArgument, StepSkipped
from thinwire.torch._bucket import Bucket, check_gradient, copy, fill, layer_of, views
from thinwire.torch._core import Core
from thinwire.torch._device import one_device

#: Bytes of a bucket, as in DDP.
BUCKET_BYTES = 25 << 20


class Synchronizer(Core):
    """Averages the gradients of some parameters: ``synchronize()`` between ``backward()`` and ``step()``.

    >>> sync = Synchronizer(model.named_parameters(), method="redsync", density=0.01)  # doctest: +SKIP
    >>> loss.backward(); sync.synchronize(); optimizer.step()                          # doctest: +SKIP

    ``params`` are names with parameters, as ``model.named_parameters()`` gives them, or parameters alone, which are
    then numbered. A parameter without a gradient counts as one with a gradient of zeros; it gets one. All ranks make it
    together. Everything else is as in :func:`thinwire.torch.compress`. Beside the residual this holds one copy of the
    gradient.
    """

    def __init__(
        self,
        params: "Iterable[Union[torch.Tensor, tuple[str, torch.Tensor]]]",
        method: Optional[str] = None,
        density: Optional[float] = None,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        **settings: Any,
    ) -> None:
        names: "dict[torch.Tensor, str]" = {}
        for number, entry in enumerate(params):
            name, parameter = entry if isinstance(entry, tuple) else (f"parameter {number}", entry)
            if not isinstance(parameter, torch.Tensor):
                raise BadArgument(f"parameter {name!r} is a {type(parameter).__name__}; expected a tensor")
            # A tied parameter has two names and one gradient.
            if parameter.requires_grad and parameter not in names:
                check_gradient(parameter, name)
                names[parameter] = name
        if not names:
            raise BadArgument("there are no parameters that require a gradient")
        one_device((name, parameter) for parameter, name in names.items())
        super().__init__(names, method, density, **settings)
        self._bucket_bytes = bucket_bytes
        self._parts: "list[_Part]" = []
        self._engine.connect()

    def synchronize(self) -> None:
        """Makes every gradient the mean over all ranks. All ranks call it together."""
        if not self._parts:
            # A model may have been moved since it was given.
            one_device((name, parameter) for parameter, name in self._names.items())
            self._parts = [_Part(group, self._names, self.needs_weights) for group in self._groups()]
        try:
            for part in self._parts:
                self._add(part.bucket(self._scaler is not None))
            self._finish()
        except StepSkipped:
            self._write_back()
            raise
        except BaseException as error:
            self._give_up(error)
            raise
        self._write_back()

    def _write_back(self) -> None:
        for part in self._parts:
            part.write_back()
        self._end_step()

    def _groups(self) -> "list[list[torch.Tensor]]":
        """Parameters of one dtype together, the last first: their gradients are ready first."""
        groups: "list[list[torch.Tensor]]" = []
        # Of each dtype, the group that still has room and the bytes in it.
        open_groups: "dict[torch.dtype, tuple[list[torch.Tensor], int]]" = {}
        for parameter in reversed(list(self._names)):
            size = parameter.numel() * parameter.element_size()
            group, held = open_groups.get(parameter.dtype, (None, 0))
            if group is None or held + size > self._bucket_bytes:
                group, held = [], 0
                groups.append(group)
            group.append(parameter)
            open_groups[parameter.dtype] = (group, held + size)
        return groups


class _Part:
    """The parameters of one bucket, with room for their gradients one behind the other."""

    def __init__(self, parameters: "list[torch.Tensor]", names: "dict[torch.Tensor, str]", with_weights: bool) -> None:
        self._parameters = parameters
        self._layers = [layer_of(names[parameter], parameter) for parameter in parameters]
        elements, device = sum(parameter.numel() for parameter in parameters), parameters[0].device
        self._flat = torch.zeros(elements, dtype=parameters[0].dtype, device=device)
        self._views = views(self._flat, self._layers)
        self._weights = torch.zeros(elements, device=device) if with_weights else None

    def bucket(self, scaled: bool) -> Bucket:
        there, gradients = [], []
        for layer, parameter, view in zip(self._layers, self._parameters, self._views):
            if parameter.grad is None:
                view.zero_()
                continue
            check_gradient(parameter.grad, layer.name)
            if parameter.grad.device != self._flat.device:
                raise BadArgument(
                    f"the gradient of {layer.name} is on {parameter.grad.device}; in the first step it was on"
                    f" {self._flat.device}"
                )
            there.append(view)
            gradients.append(parameter.grad)
        copy(there, gradients)
        if self._weights is not None:
            fill(self._weights, self._layers, self._parameters)
        return Bucket(self._layers, self._flat, self._weights, scaled)

    def write_back(self) -> None:
        there, means = [], []
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is None:
                parameter.grad = view.clone()
            else:
                there.append(parameter.grad)
                means.append(view)
        copy(there, means)
