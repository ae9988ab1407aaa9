"""Gradient compression for data-parallel training over slow networks.

One line after DDP::

    import thinwire.torch as tw
    sync = tw.compress(ddp, method="redsync", density=0.001)

Without torch: :class:`Compressor` turns NumPy arrays, and anything else that speaks DLPack, into few bytes and back,
:func:`methods` lists what there is, :mod:`thinwire.cost` tells what a step costs on a network.
"""

from thinwire import cost
from thinwire._compressor import Compressor, Frame
from thinwire._method import Method, Parameter, method_text, methods
from thinwire._native import __version__
from thinwire.errors import (
    BadArgument,
    BadFrame,
    BadState,
    Error,
    GroupLost,
    RanksDisagree,
    StepSkipped,
)

__all__ = [
    "BadArgument",
    "BadFrame",
    "BadState",
    "Compressor",
    "Error",
    "Frame",
    "GroupLost",
    "Method",
    "Parameter",
    "RanksDisagree",
    "StepSkipped",
    "__version__",
    "cost",
    "method_text",
    "methods",
]
