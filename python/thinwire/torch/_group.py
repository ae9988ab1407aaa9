"""torch.distributed as the engine sees it: collectives of equal sizes on memory that it hands over."""

from __future__ import annotations

import atexit
import ctypes
import time
import weakref
from datetime import timedelta
from functools import partial
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from thinwire import _native
from thinwire.errors import BadArgument, GroupLost
from thinwire.torch import _words
from thinwire.torch._fork import FORKED, in_child, keep_forever, keep_torch_groups
from thinwire.torch._words import Words

#: A wait goes on in pieces of this length: between them a thread can be told to stop.
PIECE = timedelta(seconds=0.1)
#: So many seconds pass before a waiting rank asks whether another has given up.
PATIENCE = 1.0
#: How long a step waits for a rank by default. torch's own groups wait 30 minutes.
TIMEOUT = timedelta(minutes=2)
#: Bytes that a rank sends at once of a long message.
CHUNK = 4 << 20

#: How often ranks have met, by their numbers.
_meetings: "dict[str, int]" = {}
_alive: "weakref.WeakSet[TorchGroup]" = weakref.WeakSet()


class TorchGroup:
    """The ranks of a process group, with a process group of their own: the hook's collectives never meet DDP's.

    All ranks make it together. Collectives are called by one thread at a time: the engine's, or the one that sets the
    engine up.
    """

    def __init__(self, parent: Optional[Any] = None, timeout: Optional[timedelta] = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise BadArgument(
                "torch.distributed is not initialised; call torch.distributed.init_process_group() first"
                " (under torchrun: init_process_group('gloo'))"
            )
        parent = dist.group.WORLD if parent is None else parent
        #: Ranks of the world, by rank of the group.
        self.world_ranks: "list[int]" = dist.get_process_group_ranks(parent)
        self.rank: int = dist.get_rank(parent)
        self.size: int = len(self.world_ranks)
        # Ranks may start far apart, as far as the parent allows; in a step they are close together.
        patience = timeout or _timeout_of(parent)
        #: Whether the back-end ends a collective itself when one of its messages is late. MPI and UCC do not.
        self._has_deadline = True
        #: How long a collective may take.
        self.timeout: timedelta = timeout or min(TIMEOUT, patience)
        #: For the steps; and for what is said between them, so that ranks that are not at the same point wait for each
        #: other, in vain but not for ever, instead of taking each other's messages.
        self.process_group, self._between = self._meet(parent, patience)
        #: Why the group can't be used any more.
        self._lost: Optional[str] = None
        #: Whether a collective was ended by Ctrl-C.
        self.interrupted = False
        self._busy = False
        #: The last collective with its tensors. Gloo's threads let go of it a little after it is done; were they the
        #: last to hold it, they would need the GIL for that, which takes the process down if Python is ending.
        self._last: "tuple[Any, ...]" = ()
        _alive.add(self)

    def _meet(self, parent: Any, patience: timedelta) -> "tuple[Any, Any]":
        who = "the store that the ranks meet by is gone or stuck"
        try:
            self._words = Words(_meeting(self.world_ranks), self.rank, self.size)
            self._words.arrive()
            self._wait_for_all(patience)
            who = "all have come, but could not connect"
            return self._open(parent, "step"), self._open(parent, "between")
        except RuntimeError as error:
            if isinstance(error, GroupLost):
                raise
            raise GroupLost(f"the ranks could not meet: {who}: {_first_line(error)}") from error

    def _open(self, parent: Any, purpose: str) -> Any:
        """A process group for this alone; it ends when it is dropped. Gloo's is not registered with torch: torch names
        groups by how many a rank has, so one that ends on some ranks before others would give later groups different
        names there."""
        backend = _backend(parent)
        self._has_deadline = backend == "gloo"
        if not self._has_deadline:
            return dist.new_group(self.world_ranks, self.timeout, backend)
        c10d: Any = dist.distributed_c10d
        store = c10d.PrefixStore(f"{self._words.prefix}/{purpose}", c10d._get_default_store())
        return dist.ProcessGroupGloo(store, self.rank, self.size, timeout=self.timeout)

    def _wait_for_all(self, timeout: timedelta) -> None:
        """Waits here and not in torch: Python can be interrupted here."""
        until = time.monotonic() + timeout.total_seconds()
        while absent := self._words.absent(max(until - time.monotonic(), PATIENCE)):
            if time.monotonic() > until:
                names = f"rank{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"
                raise GroupLost(f"the ranks could not meet: {names} did not come within {timeout.total_seconds():g} s")
            time.sleep(0.02)

    def all_reduce(self, address: int, length: int, dtype: str) -> None:
        if self._alone():
            return
        values = torch.frombuffer(_memory(address, length), dtype=getattr(torch, dtype))
        self._run("an all-reduce", lambda: self.process_group.allreduce([values]), values)

    def all_gather(self, address: int, length: int, into: int) -> None:
        if self._alone():
            ctypes.memmove(into, address, length)
            return
        mine = torch.frombuffer(_memory(address, length), dtype=torch.uint8)
        self._gather(mine, torch.frombuffer(_memory(into, length * self.size), dtype=torch.uint8), self.process_group)

    def all_to_all(self, address: int, length: int, into: int) -> None:
        if self._alone():
            ctypes.memmove(into, address, length)
            return
        mine = torch.frombuffer(_memory(address, length), dtype=torch.uint8)
        everything = torch.frombuffer(_memory(into, length), dtype=torch.uint8)
        start = partial(self.process_group.alltoall_base, everything, mine, [], [])
        self._run("an all-to-all", start, mine, everything)

    def broadcast(self, root: int, address: int, length: int) -> None:
        if self._alone():
            return
        message = torch.frombuffer(_memory(address, length), dtype=torch.uint8)
        options = dist.BroadcastOptions()
        options.rootRank = root
        start = partial(self.process_group.broadcast, [message], options)
        self._run(f"a broadcast from rank {root}", start, message)

    def sum(self, values: torch.Tensor) -> None:
        """Puts the sum over all ranks in the place of a tensor of any dtype, dense or sparse. Between steps."""
        if not self._alone():
            self._run("an all-reduce", lambda: self._between.allreduce([values]), values)

    def gather(self, mine: bytes) -> "list[bytes]":
        """The messages of all ranks, which must be of the same length, above 0. Between steps."""
        everything = torch.empty(len(mine) * self.size, dtype=torch.uint8, device="cpu")
        self._gather(torch.frombuffer(bytearray(mine), dtype=torch.uint8), everything, self._between)
        joined = bytes(everything.tolist())
        return [joined[start : start + len(mine)] for start in range(0, len(joined), len(mine))]

    def gather_unequal(self, mine: bytes, everywhere: bool = True) -> "list[bytes]":
        """The messages of all ranks, of any lengths, everywhere or on rank 0 alone; none on the others. Between steps.
        The deadline is that of a chunk: long messages take long on a slow network."""
        lengths = [int.from_bytes(length, "little") for length in self.gather(len(mine).to_bytes(8, "little"))]
        reads = everywhere or self.rank == 0
        messages = [bytearray() for _ in lengths if reads]
        for start in range(0, max(lengths), CHUNK):
            chunk = torch.zeros(min(CHUNK, max(lengths) - start), dtype=torch.uint8, device="cpu")
            if own := mine[start : start + CHUNK]:
                chunk[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
            everything = torch.empty(len(messages), len(chunk), dtype=torch.uint8, device="cpu")
            parts = list(everything)
            if everywhere:
                self._gather(chunk, everything.view(-1), self._between)
            else:
                gather = partial(self._between.gather, [parts] if parts else [], [chunk], dist.GatherOptions())
                self._run("a gather", gather, chunk, everything, *parts)
            for message, length, part in zip(messages, lengths, parts):
                message += part.numpy()[: max(0, length - start)].tobytes()
        return [bytes(message) for message in messages]

    def abandon(self, reason: str) -> None:
        """Gives the group up, and tells the others why."""
        if self._lost is None:
            self._lose(reason)
            self._words.say(reason, began=True)

    def check(self) -> None:
        """Fails if the group was lost or closed."""
        if self._lost is not None:
            raise GroupLost(self._lost)

    def close(self) -> None:
        """Ends the process group."""
        if self._lost is None:
            self._lost = "the group was closed"
            self.process_group = self._between = None

    def disown(self) -> None:
        """For a forked child: never uses or destroys anything of this group."""
        self._lose(FORKED)
        keep_forever(self)

    def _lose(self, reason: str) -> None:
        """The group can't be used any more. Its process groups stay: to end one waits for work that is under way."""
        self._lost = reason
        keep_forever(self.process_group, self._between)

    def stop(self) -> None:
        """For the end of the process: ends the process groups, or a collective that is under way with an error."""
        if self._lost is None and not self._busy:
            # Now, while their threads can still have the GIL: they let go of tensors a little after a collective.
            self.close()
            return
        if self._busy:
            self.abandon("its process ended in the midst of a step")
        self._lose(self._lost or "the process is ending")
        keep_forever(self._last)

    def _alone(self) -> bool:
        """Whether there is nobody to exchange anything with: then no back-end is asked, which takes its time."""
        self.check()
        return self.size == 1

    def _gather(self, mine: torch.Tensor, everything: torch.Tensor, group: Any) -> None:
        self._run("an all-gather", partial(group._allgather_base, everything, mine), mine, everything)

    def _run(self, what: str, start: "Callable[[], Any]", *tensors: torch.Tensor) -> None:
        self.check()
        work = None
        self._busy = True
        try:
            work = start()
            self._last = (work, *tensors)
            self._wait(work)
        except GroupLost:
            raise
        except Exception as error:
            reason = f"{what} failed: {_first_line(error)}"
            self._lose(reason)
            self._lost = self._words.explain(reason)
            raise GroupLost(self._lost) from error
        except BaseException:
            self.interrupted = True
            self.abandon("it was interrupted")
            raise
        finally:
            if work is not None and not work.is_completed():
                keep_forever(self._last, self.process_group, self._between)
            self._busy = False

    def _wait(self, work: Any) -> None:
        began = asked = time.monotonic()
        while not _finished(work):
            # Another thread may have given up in the meantime, or another rank.
            self.check()
            if not self._has_deadline and time.monotonic() - began > self.timeout.total_seconds():
                raise RuntimeError(f"not done within {self.timeout.total_seconds():g} s")
            if time.monotonic() - asked > PATIENCE:
                if self._words.anybody(PIECE.total_seconds()):
                    reason = "another rank has given up"
                    self._lose(reason)
                    self._lost = self._words.explain(reason)
                    raise GroupLost(self._lost)
                asked = time.monotonic()


def _meeting(ranks: "list[int]") -> str:
    """A name for this meeting of these ranks: they meet in the same order everywhere."""
    members = "-".join(map(str, ranks))
    _meetings[members] = _meetings.get(members, 0) + 1
    return f"{members}/{_meetings[members]}"


def _finished(work: Any) -> bool:
    """Waits for a while; whether the work is done. Releases the GIL."""
    try:
        work.wait(PIECE)
    except RuntimeError:
        if not work.is_completed():
            return False
        # It failed, or it ended just after the time was over: asked again, it says which.
        work.wait(PIECE)
    return True


@in_child
def _disown_all() -> None:
    groups = list(_alive)
    _alive.clear()
    for group in groups:
        group.disown()
    if groups:
        keep_torch_groups()


@atexit.register
def _stop_all() -> None:
    """A thread that comes back into Python while the interpreter ends would take the process down with it."""
    for group in list(_alive):
        group.stop()
    until = time.monotonic() + 5
    while _native.calls_under_way() and time.monotonic() < until:
        time.sleep(0.01)
    _words.join(1)


def _memory(address: int, length: int) -> Any:
    return (ctypes.c_char * length).from_address(address)


def _backend(parent: Any) -> str:
    """Bytes are in the CPU's memory, whatever the gradients' back-end is."""
    name = dist.get_backend(parent)
    return name if name in ("mpi", "ucc") else "gloo"


def _timeout_of(parent: Any) -> timedelta:
    """The parent's timeout, which DDP's users know; torch's default where it can't be asked for."""
    for device in ("cpu", "cuda"):
        try:
            timeout: timedelta = parent._get_backend(torch.device(device)).options._timeout
            return timeout
        except (AttributeError, RuntimeError):
            pass
    return dist.distributed_c10d.default_pg_timeout


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
