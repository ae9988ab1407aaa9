"""Runs functions on ranks: processes that have met over Gloo and live from test to test.

``run(2, function, 7)`` calls ``function(rank, 7)`` on two ranks at once and returns what they return, in the order of
the ranks. The functions are found by name, so they stand at the top of a test module. Processes are forked from a
server that has imported torch once, so a fresh rank costs little; those that a test has harmed are replaced.
"""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Callable

from ports import free_port

#: Seconds that a call may take, with all its steps, on a busy machine.
DEADLINE = 90.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch", "torch._dynamo", "torch.nn.parallel", "thinwire.torch"])
_groups: "dict[int, Ranks]" = {}


class RanksFailed(AssertionError):
    """Some ranks failed; the message has what every one of them said."""


class Ranks:
    """Some processes that have met."""

    def __init__(self, size: int) -> None:
        port = free_port()
        self.processes = []
        self.pipes: "list[Connection]" = []
        #: Files into which ranks write where they are.
        self.stacks = [tempfile.NamedTemporaryFile("r") for _ in range(size)]
        for rank in range(size):
            here, there = _processes.Pipe()
            process = _processes.Process(
                target=_work, args=(rank, size, port, there, self.stacks[rank].name), daemon=True
            )
            process.start()
            there.close()
            self.processes.append(process)
            self.pipes.append(here)

    def start(self, function: "Callable[..., Any]", *arguments: Any) -> None:
        for pipe in self.pipes:
            pipe.send((function, arguments))

    def result(self, rank: int, until: float) -> "tuple[bool, Any]":
        """Whether the function returned, and what; or the text of what went wrong."""
        pipe = self.pipes[rank]
        try:
            if pipe.poll(max(0.0, until - time.monotonic())):
                return pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, ConnectionError):
            self.processes[rank].join(5)
            return False, f"its process ended with {self.processes[rank].exitcode}"
        return False, f"no answer in time; it is here:\n{self._where(rank)}"

    def _where(self, rank: int) -> str:
        """Where the threads of a rank are."""
        os.kill(self.processes[rank].pid, signal.SIGUSR1)
        time.sleep(1)
        self.stacks[rank].seek(0)
        return self.stacks[rank].read()

    def end(self) -> None:
        for process, pipe in zip(self.processes, self.pipes):
            pipe.close()
            process.kill()
            process.join()
        for stacks in self.stacks:
            stacks.close()


def run(size: int, function: "Callable[..., Any]", *arguments: Any, deadline: float = DEADLINE) -> "list[Any]":
    """What the function returns on each of `size` ranks."""
    if size not in _groups:
        _groups[size] = Ranks(size)
    ranks = _groups[size]
    ranks.start(function, *arguments)
    until = time.monotonic() + deadline
    results = [ranks.result(rank, until) for rank in range(size)]
    if all(well for well, _ in results):
        return [value for _, value in results]
    forget(size)
    said = "\n".join(f"rank {rank}: {'returned' if well else value}" for rank, (well, value) in enumerate(results))
    raise RanksFailed(f"{function.__name__}{arguments} failed\n{said}")


def harm(size: int, function: "Callable[..., Any]", *arguments: Any, deadline: float = DEADLINE) -> "list[Any]":
    """The same on fresh processes that are ended afterwards. A rank that ended without an answer gives `None`."""
    ranks = Ranks(size)
    try:
        ranks.start(function, *arguments)
        until = time.monotonic() + deadline
        results = [ranks.result(rank, until) for rank in range(size)]
    finally:
        ranks.end()
    for rank, (well, value) in enumerate(results):
        if not well and not str(value).startswith("its process ended"):
            raise RanksFailed(f"{function.__name__}{arguments} failed\nrank {rank}: {value}")
    return [value if well else None for well, value in results]


def forget(size: int) -> None:
    """Ends the ranks of this size; the next call starts others."""
    if size in _groups:
        _groups.pop(size).end()


@atexit.register
def close() -> None:
    for size in list(_groups):
        forget(size)


def _work(rank: int, size: int, port: int, pipe: Connection, stacks: str) -> None:
    where = open(stacks, "w")
    faulthandler.register(signal.SIGUSR1, where)
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        torch.manual_seed(0)
        try:
            answer = True, function(rank, *arguments)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)
