"""torch.distributed as the engine sees it: collectives of equal sizes on memory that it hands over."""

from __future__ import annotations

import ctypes
import itertools
import time
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from thinwire.errors import BadArgument, GroupLost

#: How long a collective may take before somebody looks whether another rank has given up.
PATIENCE = timedelta(seconds=1)
#: How long the others get to say that they are still there, after a collective has failed.
LAST_WORDS = 2.0

_numbers = itertools.count()


class TorchGroup:
    """The ranks of a process group, with a process group of their own: the hook's collectives never meet DDP's.

    All ranks make it together. A rank that gives up says why through the store that the ranks met by, so that the
    others need not wait for their timeout and can name the one that was missing.
    """

    def __init__(self, parent: Optional[Any] = None, timeout: Optional[timedelta] = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise BadArgument(
                "torch.distributed is not initialised; call torch.distributed.init_process_group() first"
                " (under torchrun: init_process_group('gloo'))"
            )
        parent = dist.group.WORLD if parent is None else parent
        self.rank: int = dist.get_rank(parent)
        self.size: int = dist.get_world_size(parent)
        ranks = dist.get_process_group_ranks(parent)
        #: Ranks of the world, by rank of the group.
        self._world = ranks
        self._parent = parent
        self._group = dist.new_group(ranks, backend=_backend(parent), timeout=timeout or _timeout_of(parent))
        self._store = dist.distributed_c10d._get_default_store()
        # Groups are made in the same order on all ranks.
        self._prefix = f"thinwire/{'-'.join(map(str, ranks))}/{next(_numbers)}"
        self._lost: Optional[str] = None

    def all_reduce(self, address: int, length: int, dtype: str) -> None:
        values = torch.frombuffer(_memory(address, length), dtype=getattr(torch, dtype))
        self._run("an all-reduce", lambda: dist.all_reduce(values, group=self._group, async_op=True))

    def all_gather(self, address: int, length: int, into: int) -> None:
        mine = torch.frombuffer(_memory(address, length), dtype=torch.uint8)
        everything = torch.frombuffer(_memory(into, length * self.size), dtype=torch.uint8)
        self._run(
            "an all-gather",
            lambda: dist.all_gather_into_tensor(everything, mine, group=self._group, async_op=True),
        )

    def broadcast(self, root: int, address: int, length: int) -> None:
        message = torch.frombuffer(_memory(address, length), dtype=torch.uint8)
        root = self._world[root]
        self._run(f"a broadcast from rank {root}", lambda: dist.broadcast(message, root, self._group, async_op=True))

    def abandon(self, reason: str) -> None:
        """Tells the others that this rank has given up."""
        if self._lost is None:
            self._lost = reason
            self._say(reason)

    def close(self) -> None:
        """Ends the process group; all ranks do it together."""
        if self._lost is None:
            self._lost = "the group was closed"
            dist.destroy_process_group(self._group)

    def _run(self, what: str, start: Any) -> None:
        if self._lost is not None:
            raise GroupLost(self._lost)
        try:
            work = start()
            while not _finished(work):
                # Another thread may have given up in the meantime, or another rank.
                if self._lost is not None:
                    raise GroupLost(self._lost)
                others = self._words()
                if others:
                    rank, reason = next(iter(others.items()))
                    raise GroupLost(f"rank {rank} gave up: {reason}")
        except GroupLost:
            raise
        except Exception as error:
            reason = f"{what} failed: {_first_line(error)}"
            self._lost = reason
            self._say(reason)
            raise GroupLost(f"{reason}{self._blame()}") from error

    def _say(self, reason: str) -> None:
        try:
            self._store.set(f"{self._prefix}/{self.rank}", reason[:2000])
        except Exception:  # The store is gone with rank 0: there is nobody to tell.
            pass

    def _words(self) -> "dict[int, str]":
        """Why other ranks have given up, by rank."""
        words = {}
        for rank in range(self.size):
            key = f"{self._prefix}/{rank}"
            if rank != self.rank and self._store.check([key]):
                words[rank] = self._store.get(key).decode(errors="replace")
        return words

    def _blame(self) -> str:
        """Who was missing: a rank that is still there finds out about the failure too, and says so."""
        others = set(range(self.size)) - {self.rank}
        until = time.monotonic() + LAST_WORDS
        try:
            while set(words := self._words()) != others and time.monotonic() < until:
                time.sleep(0.05)
        except Exception:
            return "; rank 0, which keeps the store that the ranks met by, does not answer"
        missing = sorted(others - set(words))
        if missing:
            names = ", ".join(map(str, missing))
            return f"; no word from rank{'s' * (len(missing) > 1)} {names}: ended, stuck, or at another step"
        return "".join(f"; rank {rank} says: {reason}" for rank, reason in words.items())


def _finished(work: Any) -> bool:
    """Waits for a while; whether the work is done. Releases the GIL."""
    try:
        work.wait(PATIENCE)
        return True
    except RuntimeError:
        if work.is_completed():
            raise
        return False


def _memory(address: int, length: int) -> Any:
    return (ctypes.c_char * length).from_address(address)


def _backend(parent: Any) -> str:
    """Bytes are in the CPU's memory, whatever the gradients' back-end is."""
    name = dist.get_backend(parent)
    return name if name in ("mpi", "ucc") else "gloo"


def _timeout_of(parent: Any) -> Optional[timedelta]:
    """The parent's timeout, which DDP's users know; `None`, torch's default, where it can't be asked for."""
    try:
        return parent._get_backend(torch.device("cpu")).options._timeout
    except (AttributeError, RuntimeError):
        return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
