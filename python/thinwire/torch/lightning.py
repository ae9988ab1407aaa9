"""thinwire for Lightning: a strategy that compresses gradients, on the CPU too, and whose checkpoints hold what was not
sent.

    from thinwire.torch.lightning import CompressedDDPStrategy

    trainer = Trainer(strategy=CompressedDDPStrategy("redsync", density=0.01), devices=2)
    trainer.fit(model, ckpt_path=...)
    print(trainer.strategy.compression.report())

A checkpoint is one file, which rank 0 writes: what all ranks have not sent is sent to rank 0 for it. It fits into any
number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, TypedDict

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler

from thinwire.errors import GroupLost
from thinwire.torch._ddp import HookState, compress
from thinwire.torch._options import Mean, RunAhead, Timeout

if TYPE_CHECKING:
    _DDPStrategy: Any = object
else:
    try:
        from lightning.pytorch.strategies import DDPStrategy as _DDPStrategy
    except ImportError:
        try:
            from pytorch_lightning.strategies import DDPStrategy as _DDPStrategy
        except ImportError as missing:
            raise ImportError("thinwire.torch.lightning needs Lightning 2: pip install lightning") from missing

#: Where a checkpoint has what was not sent.
KEY = "thinwire"


class Compression(TypedDict, total=False):
    """More arguments of :func:`thinwire.torch.compress`."""

    process_group: dist.ProcessGroup
    timeout: Timeout
    scaler: GradScaler
    optimizer: torch.optim.Optimizer
    mean: Mean
    steps_per_epoch: float
    total_steps: int
    threads: int
    check_replicas_every: int
    run_ahead: RunAhead


class CompressedDDPStrategy(_DDPStrategy):  # type: ignore[misc, unused-ignore]
    """Lightning's ``DDPStrategy`` with compressed gradients.

    Args:
        method: As in :func:`thinwire.torch.compress`, with its parameters in the text: ``"redsync:quantize=true"``.
        density: As there.
        compression: More of its arguments, such as ``{"steps_per_epoch": 100}``.
        ddp: The arguments of Lightning's ``DDPStrategy``, ``timeout`` and those of DistributedDataParallel among them.
    """

    #: The hook's state, once a fit has begun: `report()`, `set_epoch()` and all else.
    compression: Optional[HookState] = None

    def __init__(
        self,
        method: Optional[str] = None,
        density: Optional[float] = None,
        *,
        compression: Optional[Compression] = None,
        **ddp: Any,
    ) -> None:
        super().__init__(**ddp)
        self._method, self._density = method, density
        self._arguments: Compression = {**compression} if compression else {}

    def configure_ddp(self) -> None:
        """Wraps the model, and registers the hook."""
        super().configure_ddp()
        if self.compression is not None:
            # Of a fit before this one, which begins anew as its optimisers do.
            self.compression.close()
        arguments = self._arguments
        if "scaler" not in arguments and getattr(self.precision_plugin, "scaler", None) is not None:
            arguments = {**arguments, "scaler": self.precision_plugin.scaler}
        self.compression = compress(self.model, self._method, self._density, **arguments)

    def save_checkpoint(self, checkpoint: "dict[str, Any]", filepath: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint on rank 0. Called on all ranks."""
        # A checkpoint of the weights alone has no optimisers either.
        if self.compression is not None and "optimizer_states" in checkpoint:
            try:
                checkpoint[KEY] = self.compression.state_dict(all_ranks=True)
            except GroupLost:
                # Rank 0's; to go on from that, the other ranks must be named as lost.
                checkpoint[KEY] = self.compression.state_dict()
        super().save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    def load_optimizer_state_dict(self, checkpoint: "Mapping[str, Any]") -> None:
        """Goes on from a checkpoint. One of plain DDP has nothing that was not sent."""
        super().load_optimizer_state_dict(checkpoint)
        if self.compression is not None and KEY in checkpoint:
            self.compression.load_state_dict(checkpoint[KEY])
