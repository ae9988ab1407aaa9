"""thinwire for PyTorch: data-parallel training that sends an eighth of the gradient's bytes, or far less.

One line after DDP::

    import thinwire.torch as tw

    ddp = DistributedDataParallel(model)
    sync = tw.compress(ddp)
    ...
    print(sync.report())

:func:`compress` lists the settings, :func:`thinwire.methods` the methods, ``thinwire plan`` when it pays.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    raise ImportError("thinwire.torch needs PyTorch 2.4 or later: pip install torch") from missing

from thinwire.torch._adamw import AdamW
from thinwire.torch._ddp import HookState, compress, hook
from thinwire.torch._loop import Synchronizer
from thinwire.torch._report import Report

__all__ = ["AdamW", "HookState", "Report", "Synchronizer", "compress", "hook"]
