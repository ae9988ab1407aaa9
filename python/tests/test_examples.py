"""The examples, as a user runs them, on made-up data."""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

pytest.importorskip("torch")

import thinwire

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(*words, ranks=0):
    """What an example prints on rank 0. It starts its ranks by itself, or `ranks` are started as torchrun does it, but
    sooner."""
    environment = {**os.environ, "PYTHONPATH": str(Path(thinwire.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": ranks}
    # Lightning, which starts its ranks by itself, takes the port.
    settings = [meet | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks)] or [{"MASTER_PORT": free_port()}]
    started = []
    for setting in settings:
        own = environment | {name: str(value) for name, value in setting.items()}
        command, pipe = [sys.executable, *map(str, words)], subprocess.PIPE
        started.append(subprocess.Popen(command, env=own, stdout=pipe, stderr=subprocess.STDOUT, text=True))
    try:
        printed = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(printed)
    return printed[0]


def accuracy(printed):
    """By chance it would be 10 %."""
    found = re.findall(r"^accuracy (\S+) %", printed, re.MULTILINE)
    assert len(found) == 1, f"one rank prints it, once: {printed}"
    return float(found[0])


def needs(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def test_ddp_learns_and_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path):
    ddp = [EXAMPLES / "ddp_fashion_mnist.py", "--synthetic", 1500, "--epochs", 2]
    whole = run(*TORCHRUN, *ddp, "--json", tmp_path / "whole.json", "--save", tmp_path / "checkpoint-{epoch}.pt")
    assert accuracy(whole) > 60
    assert re.search(r"topk on 2 ranks, 46 steps", whole), whole
    assert re.search(r"sent .* instead of .*: [78]\d\.\d+x less", whole), whole

    run(*ddp, "--resume", tmp_path / "checkpoint-1.pt", "--json", tmp_path / "resumed.json", ranks=2)
    whole, resumed = (json.loads((tmp_path / name).read_text()) for name in ("whole.json", "resumed.json"))
    assert (whole["steps"], resumed["steps"]) == (46, 23)
    assert whole["sum_of_weights"] == resumed["sum_of_weights"]
    assert whole["accuracy"] == resumed["accuracy"]

    # One rank takes over what two have not sent.
    options = ["--resume", tmp_path / "checkpoint-1.pt", "--accumulate", 2, "--bf16"]
    assert accuracy(run(*ddp, *options, ranks=1)) > 60


def test_plain_loop():
    printed = run(EXAMPLES / "plain_loop.py", "--synthetic", 2500, ranks=2)
    assert accuracy(printed) > 60
    assert re.search(r"gaussian-k:density=0.01 on 2 ranks, 40 steps", printed), printed


@needs("accelerate")
def test_accelerate(tmp_path):
    # At the example's own rate so short a training is about to diverge.
    script = [EXAMPLES / "accelerate_ddp.py", "--synthetic", 2500, "--lr", 0.02]
    printed = run(*script, "--save", tmp_path, ranks=2)
    assert accuracy(printed) > 60
    assert re.search(r"quantized on 2 ranks, 40 steps", printed), printed
    assert accuracy(run(*script, "--accumulate", 2, "--resume", tmp_path, ranks=2)) > 80


@needs("lightning")
def test_lightning(tmp_path):
    script = [EXAMPLES / "lightning_ddp.py", "--synthetic", 2500, "--lr", 0.02]
    printed = run(*script, "--save", tmp_path / "checkpoint")
    assert accuracy(printed) > 60
    # Without the hook there would be no step.
    assert re.search(r"quantized on 2 ranks, 40 steps", printed), printed
    assert accuracy(run(*script, "--epochs", 2, "--resume", tmp_path / "checkpoint")) > 80


@pytest.fixture
def fashion_mnist(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import fashion_mnist

    return fashion_mnist


def test_reads_idx_files(tmp_path, fashion_mnist):
    sides = b"".join(side.to_bytes(4, "big") for side in (2, 28, 28))
    pixels = bytes(range(256)) * 6 + bytes(32)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x03" + sides + pixels))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x02\x07\x03"))
    images, labels = fashion_mnist.read(tmp_path, "train").tensors
    assert images.shape == (2, 1, 28, 28)
    assert labels.tolist() == [7, 3]
    assert images[0, 0, 9, 3].item() == pytest.approx((255 / 255 - 0.2860) / 0.3530)


def test_says_how_to_get_the_data(tmp_path, fashion_mnist):
    with pytest.raises(SystemExit, match="apt-get install -y dataset-fashion-mnist"):
        fashion_mnist.read(tmp_path, "train")
