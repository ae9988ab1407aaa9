"""Processes that end in all kinds of states, with their interpreter. Run as a script, by test_exit.py.

For each case two ranks are forked from this process, which has imported torch once; they end by reaching the end of the
script, so that Python is finalised as in any program. Prints, as JSON, how each ended and after how many seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

CASES = ["plain", "closed", "destroyed", "in backward", "in forward", "interrupted", "exit in a step", "killed"]
#: Longer than any of this may take.
TIMEOUT = 40.0


class Layers(nn.Module):
    """Fails between two buckets when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 4)
        self.fail = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.fail:
            x.register_hook(lambda gradient: sys.exit("left in the midst of a step"))
        return self.second(x)  # type: ignore[no-any-return]


def step(ddp: Any, rank: int) -> None:
    ddp(torch.full((2, 8), rank + 1.0)).square().mean().backward()


def rank_of(case: str, rank: int, port: int, folder: Path) -> None:
    """What a rank does; rank 1 is the one that leaves."""
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(seconds=TIMEOUT))
    model = Layers()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
    sync = tw.compress(ddp, "redsync", dense_up_to=0)
    for _ in range(4):
        step(ddp, rank)
    if case == "closed":
        sync.close()
    if case == "destroyed":
        dist.destroy_process_group()
        sync.close()
    if case in ("plain", "closed", "destroyed"):
        return
    if rank == 0:
        time.sleep(5)
        for _ in range(4):
            step(ddp, rank)
        return
    (folder / "leaving").touch()
    if case == "in backward":
        model.fail = True
        step(ddp, rank)
    if case == "in forward":
        raise ArithmeticError("not this time")
    if case == "interrupted":
        step(ddp, rank)
        step(ddp, rank)
    if case == "exit in a step":
        # The engine's thread is in a collective that nobody answers.
        finish = sync._wait
        sync._wait = lambda: (time.sleep(0.5), sys.exit(7), finish())  # type: ignore[method-assign]
        step(ddp, rank)
    if case == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder = Path(sys.argv[1])
    ports = [int(port) for port in sys.argv[2:]]
    found = {}
    for case, port in zip(CASES, ports):
        children = {}
        for rank in range(2):
            process = os.fork()
            if process == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                errors = os.open(folder / f"{case} {rank}", os.O_WRONLY | os.O_CREAT)
                os.dup2(errors, 2)
                rank_of(case, rank, port, folder)
                return
            children[rank] = process
        ended: "dict[int, tuple[int, float]]" = {}
        left = None
        begun = time.monotonic()
        while len(ended) < 2 and time.monotonic() - begun < TIMEOUT + 20:
            time.sleep(0.02)
            if left is None and (folder / "leaving").exists():
                (folder / "leaving").unlink()
                if case == "interrupted":
                    time.sleep(1)
                    os.kill(children[1], signal.SIGINT)
                left = time.monotonic()
            for rank, process in children.items():
                done, status = os.waitpid(process, os.WNOHANG) if rank not in ended else (0, 0)
                if done:
                    ended[rank] = (os.waitstatus_to_exitcode(status), time.monotonic() - (left or begun))
        for rank in set(children) - set(ended):
            os.kill(children[rank], signal.SIGKILL)
        found[case] = [ended.get(rank) for rank in range(2)]
    print(json.dumps(found))


main()
