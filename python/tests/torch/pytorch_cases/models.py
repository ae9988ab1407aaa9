"""The models that the cases train. Each is small; several have more than one bucket at a low `bucket_cap_mb`."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Pair = namedtuple("Pair", ["left", "right"])


class Carrier:
    """An input that DDP does not look into."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Net(nn.Module):
    """Three layers, and a parameter of integers that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 12, bias=False), nn.Linear(12, 24), nn.Linear(24, 4)
        self.constant = nn.Parameter(torch.tensor([2, 2]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.third(F.relu(self.second(F.relu(self.first(x))))), dim=1)


class Inputs(nn.Module):
    """Takes two tensors in a container of some kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> torch.Tensor:
        if isinstance(x, Carrier):
            return self.layer(x.tensor)
        left, right = x.values() if isinstance(x, dict) else x
        return self.layer(left * right)


class NoOutput(nn.Module):
    """A layer with no output features beside one that has some."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.none, self.head = nn.Linear(8, 8), nn.Linear(8, 0), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.trunk(x))
        return torch.cat([self.none(x), self.head(x)], dim=1)


class Nested(nn.Module):
    """Returns tensors inside containers, from one layer used several times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1, bias=False)

    def forward(self, x: torch.Tensor, kind: str) -> Any:
        one, two, three = self.layer(x), self.layer(2 * x), self.layer(x * x)
        return {"tuple": (one, (two, three)), "list": [one, [two, three]], "dict": {"a": one, "b": {"c": two}}}[kind]


def total(output: Any) -> torch.Tensor:
    """The sum of all tensors in nested containers."""
    if isinstance(output, torch.Tensor):
        return output.square().sum()
    parts = output.values() if isinstance(output, dict) else output
    return sum((total(part) for part in parts), torch.zeros(()))


class DetachedOutput(nn.Module):
    """Returns a tensor that needs no gradient beside one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> "tuple[torch.Tensor, torch.Tensor]":
        y = self.second(F.relu(self.first(x)))
        return y.detach(), y.clone()


class NewTensors(nn.Module):
    """Returns tensors it has made itself, some of which it gets back in the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor, before: "Optional[dict[str, torch.Tensor]]") -> Any:
        made = torch.ones(1, 8, device=x.device) if before is None else before["made"]
        return self.second(F.relu(self.first(x))), {"made": made}


@dataclass
class Outputs:
    """What :class:`DataclassOutput` returns."""

    first: Optional[torch.Tensor]
    others: "dict[str, torch.Tensor]"


class DataclassOutput(nn.Module):
    """With `skip` a part of it is not used."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.skip = nn.Linear(8, 8), nn.Linear(8, 8), skip

    def forward(self, x: torch.Tensor) -> Outputs:
        first = None if self.skip else F.relu(self.one(x))
        return Outputs(first, {"a": self.two(x), "b": F.relu(self.two(x))})


class Checkpointed(nn.Module):
    """Recomputes its second layer in the backward pass, `times` times."""

    def __init__(self, times: int = 1, reentrant: bool = False, shared: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        if shared:
            self.first.weight = self.second.weight
        self.times, self.reentrant = times, reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(self.second, x, use_reentrant=self.reentrant)
        return x


class CheckpointedInTurn(Checkpointed):
    """Recomputes one layer in even steps and the other in odd ones."""

    step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return checkpoint(self.first if self.step % 2 else self.second, x, use_reentrant=False)


class Shared(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.first.weight = self.second.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Mixed(nn.Module):
    """Layers of two dtypes, the last of them used or not."""

    def __init__(self, first: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.first = nn.Linear(8, 12, bias=False).to(first)
        self.second, self.third = nn.Linear(12, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor, use_third: bool = True) -> torch.Tensor:
        x = F.relu(self.second(F.relu(self.first(x.to(self.first.weight.dtype))).float()))
        return F.softmax(self.third(x) if use_third else x, dim=1)


class Bag(nn.Module):
    """An embedding with sparse gradients, and optionally a dense layer behind it."""

    def __init__(self, dense: bool = False) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(16, 8, sparse=True)
        self.dense = nn.Linear(8, 8) if dense else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.dense(self.table(x)), dim=1)


class Fourier(nn.Module):
    """Complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 6, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.einsum("nchw,cohw->nohw", torch.fft.rfft2(x), self.weight)
        return torch.fft.irfft2(spectrum, s=(6, 6))


class Normalized(nn.Module):
    """Batch normalisation: buffers that change in the forward pass."""

    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16, momentum=0.99, affine=affine)
        self.second = nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.second(F.relu(self.norm(self.first(x)))), dim=1)


class Buffered(nn.Module):
    """A buffer beside two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8, bias=False), nn.Linear(8, 1, bias=False)
        self.register_buffer("buffer", torch.ones(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.buffer.add_(1)
        return self.second(self.first(x))


class Branches(nn.Module):
    """A trunk and layers that are used or not: the numbers in `used` say which."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.trunk = nn.Linear(8, 8, bias=False)
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor, used: "tuple[int, ...]") -> torch.Tensor:
        x = self.trunk(x)
        for number in used:
            x = self.layers[number](F.relu(x))
        return x


class Apart(nn.Module):
    """Layers side by side, of which a step uses some, and possibly none on a rank."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor, used: "tuple[int, ...]") -> "list[torch.Tensor]":
        return [self.layers[number](x) for number in used]


class SharedUnused(nn.Module):
    """An unused layer whose bias has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(8, 4, bias=False)
        self.bias = nn.Parameter(torch.zeros(4))
        self.unused.bias = self.bias
        self.used = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class TwoOutputs(nn.Module):
    """Two layers whose outputs are returned apart."""

    def __init__(self, in_dict: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.in_dict = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), in_dict

    def forward(self, x: torch.Tensor) -> Any:
        outputs = self.a(x), self.b(x)
        return {"predictions": outputs} if self.in_dict else outputs


def convolutions() -> nn.Module:
    layers = nn.Conv2d(3, 8, 2), nn.ReLU(), nn.Conv2d(8, 4, 2), nn.Flatten(), nn.Linear(64, 4)
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def with_hooks() -> nn.Module:
    """Module hooks that change inputs, outputs and gradients."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    model[0].register_forward_pre_hook(lambda module, inputs: F.relu(inputs[0]))
    model[0].register_forward_hook(lambda module, inputs, output: F.gelu(output))
    model[1].register_full_backward_hook(lambda module, inputs, outputs: (F.celu(inputs[0]),))
    return model
