"""Gradients of loops without DistributedDataParallel."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler

from thinwire._method import Value
from thinwire.errors import BadArgument, StepSkipped
from thinwire.torch._bucket import Bucket, check_device, copy, fill, layer_of, obstacle, real, views
from thinwire.torch._core import Core
from thinwire.torch._device import one_device
from thinwire.torch._names import by_parameter
from thinwire.torch._options import Mean, Options, RunAhead, Timeout, method_with_defaults
from thinwire.torch._uncompressed import Uncompressed

#: Bytes of a bucket, as in DDP.
BUCKET_BYTES = 25 << 20


class Synchronizer(Core):
    """Averages the gradients of some parameters: ``synchronize()`` between ``backward()`` and ``step()``.

    >>> sync = Synchronizer(model.named_parameters(), method="redsync", density=0.01)  # doctest: +SKIP
    >>> loss.backward(); sync.synchronize(); optimizer.step()                          # doctest: +SKIP

    ``params`` are names with parameters, as ``model.named_parameters()`` gives them, or parameters alone, which are
    then numbered. A parameter without a gradient counts as one with a gradient of zeros; it gets one. Gradients that
    can't be compressed (64-bit, sparse) are averaged dense. All ranks make it together. Everything else is as in
    :func:`thinwire.torch.compress`. Beside the residual this holds one copy of the gradient.
    """

    def __init__(
        self,
        params: "Iterable[Union[torch.Tensor, tuple[str, torch.Tensor]]]",
        method: Optional[str] = None,
        density: Optional[float] = None,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        process_group: Optional[dist.ProcessGroup] = None,
        timeout: Timeout = None,
        scaler: Optional[GradScaler] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        mean: Mean = "ranks",
        steps_per_epoch: Optional[float] = None,
        total_steps: Optional[int] = None,
        threads: Optional[int] = None,
        check_replicas_every: int = 100,
        run_ahead: RunAhead = False,
        **parameters: Value,
    ) -> None:
        options = Options(
            process_group=process_group,
            timeout=timeout,
            scaler=scaler,
            optimizer=optimizer,
            mean=mean,
            steps_per_epoch=steps_per_epoch,
            total_steps=total_steps,
            threads=threads,
            check_replicas_every=check_replicas_every,
            run_ahead=run_ahead,
        )
        names: "dict[torch.Tensor, str]" = {}
        order: "list[torch.Tensor]" = []
        for number, entry in enumerate(params):
            name, parameter = entry if isinstance(entry, tuple) else (f"parameter {number}", entry)
            if not isinstance(parameter, torch.Tensor):
                raise BadArgument(f"parameter {name!r} is a {type(parameter).__name__}; expected a tensor")
            order.append(parameter)
            # A tied parameter has two names and one gradient.
            if parameter.requires_grad and parameter not in names:
                check_device(parameter, name)
                names[parameter] = name
        by_name = {name: parameter for parameter, name in names.items()}
        if len(by_name) == len(names):
            names = by_parameter(by_name)
        if not names:
            raise BadArgument("there are no parameters that require a gradient")
        one_device((name, parameter) for parameter, name in names.items())
        super().__init__(names, method_with_defaults(method, density, parameters, options), options)
        self._arrange(bucket_bytes, self._in_order(order))
        self._engine.connect()

    def _arrange(self, bucket_bytes: int, order: "list[tuple[str, int]]") -> None:
        self._order = order
        self._bucket_bytes = bucket_bytes
        self._parts: "list[Union[_Part, _SparsePart]]" = []

    def _parameter_order(self) -> "list[tuple[str, int]]":
        return self._order

    def __getstate__(self) -> "dict[str, Any]":
        named = [(name, parameter) for parameter, name in self._names.items()]
        arranged = {"bucket_bytes": self._bucket_bytes, "order": self._order}
        return {**super().__getstate__(), "parameters": named, **arranged}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self._become(state, {parameter: name for name, parameter in state["parameters"]})
        self._arrange(state["bucket_bytes"], state["order"])

    def synchronize(self) -> None:
        """Makes every gradient the mean over all ranks. All ranks call it together."""
        if self._is_copy:
            self._rejoin()
        if not self._parts:
            # A model may have been moved since it was given.
            one_device((name, parameter) for parameter, name in self._names.items())
            self._sparse = self._found_sparse()
            parts = [_Part(group, self._names, self.needs_weights) for group in self._groups()]
            self._parts = [*parts, *(_SparsePart(p, name) for p, name in self._names.items() if p in self._sparse)]
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

    def _found_sparse(self) -> "set[torch.Tensor]":
        """The parameters that have a sparse gradient on some rank. All ranks call it together."""
        sparse = [name for p, name in self._names.items() if p.grad is not None and p.grad.layout != torch.strided]
        everywhere = self._engine.connect().gather_unequal("\n".join(sparse).encode())
        found = {name for names in everywhere for name in names.decode().split("\n")}
        return {parameter for parameter, name in self._names.items() if name in found}

    def _expect_sparse(self, names: "Sequence[str]") -> None:
        if not self._parts:
            self._sparse = {parameter for parameter, name in self._names.items() if name in names}

    def _groups(self) -> "list[list[torch.Tensor]]":
        """Parameters of one dtype together, the last first: their gradients are ready first."""
        groups: "list[list[torch.Tensor]]" = []
        # Of each dtype, the group that still has room and the bytes in it.
        open_groups: "dict[torch.dtype, tuple[list[torch.Tensor], int]]" = {}
        for parameter in reversed([p for p in self._names if p.numel() and p not in self._sparse]):
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
        elements, device = sum(layer.elements for layer in self._layers), parameters[0].device
        self._obstacle = obstacle(parameters[0])
        self._flat = torch.zeros(elements, dtype=real(parameters[0]).dtype, device=device)
        self._views = views(self._flat, self._layers)
        self._weights: Optional[torch.Tensor] = None
        if with_weights and self._obstacle is None:
            self._weights = torch.zeros(elements, dtype=torch.float32, device=device)

    def bucket(self, scaled: bool) -> "Union[Bucket, Uncompressed]":
        there, gradients = [], []
        for layer, parameter, view in zip(self._layers, self._parameters, self._views):
            if parameter.grad is None:
                view.zero_()
                continue
            if parameter.grad.layout != torch.strided:
                raise BadArgument(
                    f"the gradient of {layer.name} is {parameter.grad.layout}; in the first step it was dense on all"
                    " ranks: expected a dense one"
                )
            if parameter.grad.device != self._flat.device:
                raise BadArgument(
                    f"the gradient of {layer.name} is on {parameter.grad.device}; in the first step it was on"
                    f" {self._flat.device}"
                )
            there.append(view)
            gradients.append(real(parameter.grad))
        copy(there, gradients)
        if self._obstacle is not None:
            return Uncompressed([layer.name for layer in self._layers], self._flat, self._obstacle)
        if self._weights is not None:
            fill(self._weights, self._layers, self._parameters)
        return Bucket(self._layers, self._flat, self._weights, scaled)

    def write_back(self) -> None:
        there, means = [], []
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is None:
                parameter.grad = torch.view_as_complex(view).clone() if parameter.is_complex() else view.clone()
            else:
                there.append(real(parameter.grad))
                means.append(view)
        copy(there, means)


class _SparsePart:
    """One parameter with sparse gradients."""

    def __init__(self, parameter: torch.Tensor, name: str) -> None:
        self._parameter, self._name = parameter, name
        self._gradient: Optional[torch.Tensor] = None

    def bucket(self, scaled: bool) -> Uncompressed:
        gradient = self._parameter.grad
        if gradient is None:
            like = self._parameter
            # Zeros, none of them stored.
            gradient = torch.zeros(like.shape, dtype=like.dtype, device=like.device).to_sparse(1)
        self._gradient = (gradient if gradient.is_sparse else gradient.to_sparse(1)).detach()
        return Uncompressed([self._name], self._gradient, "sparse")

    def write_back(self) -> None:
        self._parameter.grad = self._gradient
