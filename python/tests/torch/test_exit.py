"""No process hangs when it ends, in whatever state; and a run under torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ports import free_port

HERE = Path(__file__).parent


def test_processes_end_at_once_in_any_state(tmp_path: Path) -> None:
    ports = [str(free_port()) for _ in range(8)]
    command = [sys.executable, str(HERE / "exits.py"), str(tmp_path), *ports]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    said = {path.name: path.read_text() for path in tmp_path.iterdir()}
    statuses = {case: [end and end[0] for end in ends] for case, ends in found.items()}
    for case in ("plain", "closed", "destroyed"):
        assert statuses[case] == [0, 0], (case, found[case], said)
    expected = {"in backward": 1, "in forward": 1, "exit in a step": 7, "killed": -9}
    for case, status in expected.items():
        assert statuses[case] == [1, status], (case, found[case], said[f"{case} 0"], said[f"{case} 1"])
    assert statuses["interrupted"][1] in (-2, 130, 1), found["interrupted"]
    assert statuses["interrupted"][0] == 1
    for case in [*expected, "interrupted"]:
        # The machine may be busy; the timeout is 40 seconds.
        assert found[case][1][1] < 15, (case, found[case])
        assert found[case][0][1] < 25, (case, found[case])
        heard = said[f"{case} 0"]
        assert "GroupLost" in heard and "rank 1" in heard, (case, heard)
    assert "rank 1 gave up: it was interrupted" in said["interrupted 0"]
    assert "KeyboardInterrupt" in said["interrupted 1"]


SCRIPT = """
import faulthandler
faulthandler.dump_traceback_later(150)
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import thinwire.torch as tw

dist.init_process_group("gloo")
model = torch.nn.Linear(100, 100)
ddp = DistributedDataParallel(model)
sync = tw.compress(ddp, method="redsync", density=0.01)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    optimizer.zero_grad()
    ddp(torch.randn(4, 100)).square().mean().backward()
    optimizer.step()
# In one piece: the other rank writes to the same place.
print(f"weights {model.weight.double().sum().item()}\\n", end="", flush=True)
if dist.get_rank() == 0:
    print(f"{sync.report()}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def test_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed, errors = started.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        # It ends its ranks and says where it was, as they have done by themselves.
        started.terminate()
        printed, errors = started.communicate(timeout=60)
    assert started.returncode == 0, errors
    weights = [line for line in printed.splitlines() if line.startswith("weights")]
    assert len(weights) == 2 and weights[0] == weights[1], printed
    assert "on 2 ranks, 5 steps" in printed, printed
