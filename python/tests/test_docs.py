"""Every block of Python in docs/pytorch.md runs: whole scripts as they stand, the others in a job of two ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import thinwire

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

# What the page says that blocks take as given. Every block begins anew.
JOB = """
import sys, tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import thinwire.torch as tw

dist.init_process_group("gloo")

def given(folder):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    ddp = DistributedDataParallel(model)
    return {
        "torch": torch, "dist": dist, "nn": nn, "DistributedDataParallel": DistributedDataParallel, "tw": tw,
        "model": model, "ddp": ddp, "optimizer": torch.optim.SGD(ddp.parameters(), lr=0.01),
        "loss_function": nn.CrossEntropyLoss(), "folder": folder,
        "batches": [(torch.randn(8, 64), torch.randint(10, (8,))) for _ in range(4)],
    }

folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
for path in sys.argv[1:]:
    with open(path) as file:
        block = file.read()
    names = given(folder[0])
    exec(compile(block, path, "exec"), names)
    # A block that only registers a hook is followed by a step.
    if ".backward()" not in block:
        images, labels = names["batches"][0]
        names["loss_function"](names["ddp"](images), labels).backward()
    for name in ("sync", "state"):
        if name in names:
            assert names[name].report().steps > 0, path
    dist.barrier()
    if dist.get_rank() == 0:
        print("passed", path, flush=True)
"""


def blocks():
    """The Python of the page with the numbers of its lines kept, so that a failure names the right one."""
    lines, found, start = PAGE.read_text().splitlines(), [], None
    for number, line in enumerate(lines):
        fence = re.fullmatch(r"( *)```(\w*)", line)
        if not fence:
            continue
        if start is not None:
            indent, begin = start
            if begin is not None:
                found.append("\n" * begin + "\n".join(text[indent:] for text in lines[begin:number]) + "\n")
            start = None
        else:
            start = len(fence[1]), number + 1 if fence[2] == "python" else None
    return found


def run(*words):
    package = str(Path(thinwire.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    done = subprocess.run([*TORCHRUN, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_whole_scripts(tmp_path):
    [script] = [block for block in blocks() if "init_process_group" in block]
    (tmp_path / "train.py").write_text(script)
    assert "quantized on 2 ranks, 20 steps" in run(tmp_path / "train.py")


def test_blocks(tmp_path):
    parts = [block for block in blocks() if "init_process_group" not in block]
    assert len(parts) > 10
    (tmp_path / "job.py").write_text(JOB)
    paths = []
    for number, block in enumerate(parts):
        paths.append(tmp_path / f"pytorch.md-{number}")
        paths[-1].write_text(block)
    assert run(tmp_path / "job.py", *paths).count("passed") == len(parts)
