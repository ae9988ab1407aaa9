"""Gradients of loops without DistributedDataParallel."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Union

import torch

from thinwire.errors import BadArgument
from thinwire.torch._core import Bucket, Core, check_gradient

#: Bytes of a bucket, as in DDP.
BUCKET_BYTES = 25 << 20


class Synchronizer(Core):
    """Averages the gradients of some parameters over all ranks: ``synchronize()`` between ``backward()`` and ``step()``.

    >>> sync = Synchronizer(model.named_parameters(), method="redsync", density=0.01)  # doctest: +SKIP
    >>> loss.backward(); sync.synchronize(); optimizer.step()                          # doctest: +SKIP

    ``params`` are names with parameters, as ``model.named_parameters()`` gives them, or parameters alone, which are
    then numbered. A parameter without a gradient counts as one with a gradient of zeros; it gets one. Everything else is
    as in :func:`thinwire.torch.compress`. Beside the residual this holds one copy of the gradient.
    """

    def __init__(
        self,
        params: "Iterable[Union[torch.Tensor, tuple[str, torch.Tensor]]]",
        method: str = "redsync",
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
            names.setdefault(parameter, name)
        names = {parameter: name for parameter, name in names.items() if parameter.requires_grad}
        if not names:
            raise BadArgument("there are no parameters that require a gradient")
        super().__init__(names, method, density, **settings)
        self._bucket_bytes = bucket_bytes
        self._flat: "list[tuple[torch.Tensor, list[torch.Tensor]]]" = []
        self._weights: "list[torch.Tensor]" = []

    def synchronize(self) -> None:
        """Makes every gradient the mean over all ranks. All ranks call it together."""
        if not self._flat:
            self._flat = [self._room(group) for group in self._groups()]
            if self.needs_weights:
                self._weights = [torch.zeros(flat.numel()) for flat, _ in self._flat]
        self._arrived = []
        for place, (flat, parameters) in enumerate(self._flat):
            for parameter, view in zip(parameters, _views(flat, parameters)):
                if parameter.grad is None:
                    view.zero_()
                else:
                    check_gradient(parameter.grad, self._names[parameter])
                    view.copy_(parameter.grad)
            self.add(Bucket([(self._names[p], tuple(p.shape)) for p in parameters], flat, self._weights_of(place)))
        self.finish()
        for flat, parameters in self._flat:
            for parameter, view in zip(parameters, _views(flat, parameters)):
                if parameter.grad is None:
                    parameter.grad = view.clone()
                else:
                    parameter.grad.copy_(view)

    def _groups(self) -> "list[list[torch.Tensor]]":
        """Parameters of one dtype together, the last first: their gradients are ready first."""
        groups: "list[list[torch.Tensor]]" = []
        held = 0
        for parameter in reversed(list(self._names)):
            size = parameter.numel() * parameter.element_size()
            if not groups or groups[-1][0].dtype != parameter.dtype or held + size > self._bucket_bytes:
                groups.append([])
                held = 0
            groups[-1].append(parameter)
            held += size
        return groups

    @staticmethod
    def _room(parameters: "list[torch.Tensor]") -> "tuple[torch.Tensor, list[torch.Tensor]]":
        elements = sum(parameter.numel() for parameter in parameters)
        return torch.zeros(elements, dtype=parameters[0].dtype), parameters

    def _weights_of(self, place: int) -> Optional[torch.Tensor]:
        if not self.needs_weights:
            return None
        flat, (_, parameters) = self._weights[place], self._flat[place]
        for parameter, view in zip(parameters, _views(flat, parameters)):
            view.copy_(parameter.detach())
        return flat


def _views(flat: torch.Tensor, parameters: "list[torch.Tensor]") -> "list[torch.Tensor]":
    sizes = [parameter.numel() for parameter in parameters]
    return [part.view(p.shape) for part, p in zip(flat.split(sizes), parameters)]
