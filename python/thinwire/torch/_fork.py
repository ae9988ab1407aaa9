"""What a forked child must not use: the engines and process groups of its parent.

``fork()`` copies memory and sockets, but only the thread that calls it. In the child, the destructor of a process group
joins threads that do not exist and never returns; this is true of torch's own process groups too. A message on a copied
socket would be read as one of the parent's.

So the child marks all of them as lost, never destroys them, and forgets what it would do with them at its end. It can
still make its own.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

import torch.distributed as dist

from thinwire import _native

#: Why a child can't use a group of its parent.
FORKED = "this process was forked from the one that made the group, which alone can use it"

_in_child: "list[Callable[[], None]]" = []


def in_child(forget: "Callable[[], None]") -> "Callable[[], None]":
    """Calls a function in every forked child, before anything else there. A decorator."""
    _in_child.append(forget)
    return forget


def keep_forever(*objects: Any) -> None:
    """Never destroys these."""
    for held in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


def keep_torch_groups() -> None:
    """Never destroys torch's process groups and the store by which their ranks met."""
    if dist.is_initialized():
        world = dist.distributed_c10d
        keep_forever(*world._world.pg_map, world._get_default_store())


def _after_fork() -> None:
    _native.forget_calls()
    for forget in _in_child:
        forget()


os.register_at_fork(after_in_child=_after_fork)
