"""A DDP step with thinwire, with PyTorch's own hooks and without.

24 layers Linear(1024), 25.2 M parameters. Every way has a model of its own; all of them take turns, a few steps each,
so that they meet the machine in the same moods. Ranks meet at a barrier before a step; its time is that of the slowest
rank. The figure is the median over all steps.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

LAYERS, WIDTH = 24, 1024
WAYS = ["ddp", "bf16", "powersgd", "quantized", "redsync", "gaussian-k"]
DENSITY = 0.001


def wrap(way: str) -> tuple[DistributedDataParallel, object]:
    """A model that exchanges gradients this way."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    if way == "powersgd":
        # On Gloo PyTorch's hook aborts with more than one bucket.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
        ddp = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1024)
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 20
        # Its compression begins after the second step, as early as it may.
        state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook)
        return ddp, state
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers))
    if way == "bf16":
        ddp.register_comm_hook(None, bf16_compress_hook)
    elif way == "quantized":
        return ddp, tw.compress(ddp, way)
    elif way != "ddp":
        return ddp, tw.compress(ddp, way, density=DENSITY)
    return ddp, None


def step(ddp: DistributedDataParallel, optimizer: torch.optim.Optimizer, batch: int) -> float:
    """One step; milliseconds of the slowest rank."""
    inputs = torch.randn(batch, WIDTH)
    dist.barrier()
    begun = time.perf_counter()
    optimizer.zero_grad(set_to_none=False)
    ddp(inputs).square().mean().backward()
    optimizer.step()
    took = torch.tensor([1000 * (time.perf_counter() - begun)])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def measure(options: argparse.Namespace) -> dict:
    """Every rank calls it."""
    models = {way: wrap(way) for way in options.ways}
    optimizers = {way: torch.optim.SGD(ddp.parameters(), lr=1e-3) for way, (ddp, _) in models.items()}
    times: dict[str, list[float]] = {way: [] for way in options.ways}
    for number in range(options.rounds + 1):
        for way, (ddp, _) in models.items():
            # The first round warms up: buckets are rebuilt, PowerSGD begins to compress.
            steps = options.steps if number else 3
            taken = [step(ddp, optimizers[way], options.batch) for _ in range(steps)]
            times[way] += taken if number else []
            if dist.get_rank() == 0:
                print(f"round {number} of {options.rounds}: {way} {statistics.median(taken):.1f} ms", file=sys.stderr)
    rows = {}
    for way, taken in times.items():
        rows[way] = {"p50_ms": statistics.median(taken), "least_ms": min(taken), "most_ms": max(taken)}
        rows[way]["steps"] = len(taken)
        state = models[way][1]
        if isinstance(state, tw.HookState):
            rows[way]["report"] = state.report().as_dict()
    base = rows.get("ddp", {}).get("p50_ms")
    for row in rows.values():
        row["faster_than_ddp"] = base / row["p50_ms"] if base else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(p.numel() for p in next(iter(models.values()))[0].parameters())
    return {
        "link": options.link,
        "ranks": dist.get_world_size(),
        "parameters": parameters,
        "batch": options.batch,
        "torch": torch.__version__,
        "held_bytes": held_bytes(),
        "peak_bytes": peak,
        "ways": rows,
    }


def held_bytes() -> int:
    """The memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def table(outcome: dict) -> str:
    lines = [f"{outcome['parameters']:,} parameters, {outcome['ranks']} ranks, {outcome['link']}", ""]
    lines.append(f"{'way':12}{'ms a step':>10}{'least':>9}{'most':>9}{'× faster than DDP':>20}{'MB sent a step':>17}")
    for way, row in outcome["ways"].items():
        report = row.get("report")
        sent = f"{report['sent'] / report['steps'] / 1e6:.3g}" if report else ""
        faster = f"{row['faster_than_ddp']:.2f}" if row["faster_than_ddp"] else ""
        lines.append(f"{way:12}{row['p50_ms']:10.1f}{row['least_ms']:9.1f}{row['most_ms']:9.1f}{faster:>20}{sent:>17}")
    return "\n".join(lines)


def memory(options: argparse.Namespace) -> dict:
    """The memory of each way in processes of its own, after some steps and at its peak, against that of plain DDP."""
    rows = {}
    for way in options.ways:
        command = [sys.executable, __file__, "--ways", way, "--rounds", "1", "--steps", "5", "--json"]
        outcome = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        rows[way] = {name: outcome[name] for name in ("held_bytes", "peak_bytes")}
        rows[way]["report"] = outcome["ways"][way].get("report")
    gradient = 4 * outcome["parameters"]
    for row in rows.values():
        for name in ("held", "peak"):
            beyond = row[f"{name}_bytes"] - rows["ddp"][f"{name}_bytes"]
            row[f"{name}_beyond_ddp_in_gradients"] = beyond / gradient
    return {"parameters": outcome["parameters"], "gradient_bytes": gradient, "ways": rows}


def memory_table(outcome: dict) -> str:
    lines = [f"{'way':12}{'MB':>8}{'peak':>8}{'beyond DDP, in gradients':>27}{'peak':>8}{'residual + work space':>26}"]
    for way, row in outcome["ways"].items():
        report = row["report"]
        held = f"{report['residual_bytes'] / 1e6:.1f} + {report['workspace_bytes'] / 1e6:.1f} MB" if report else ""
        beyond = f"{row['held_beyond_ddp_in_gradients']:27.2f}{row['peak_beyond_ddp_in_gradients']:8.2f}"
        lines.append(f"{way:12}{row['held_bytes'] / 1e6:8.0f}{row['peak_bytes'] / 1e6:8.0f}{beyond}{held:>26}")
    return "\n".join(lines)


def spawn() -> int:
    """Two ranks on loopback; rank 0 speaks."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(2):
        place = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in place.items()} | {"GLOO_SOCKET_IFNAME": "lo"}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    return max(rank.wait() for rank in ranks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="loopback", help="only written down: what the ranks are connected by")
    parser.add_argument("--ways", nargs="+", default=WAYS, help=f"what to measure: {' '.join(WAYS)}, or any method")
    parser.add_argument("--rounds", type=int, default=5, help="how often the ways take turns")
    parser.add_argument("--steps", type=int, default=4, help="steps in a turn")
    parser.add_argument("--batch", type=int, default=16, help="samples a step and rank")
    parser.add_argument("--memory", action="store_true", help="measure memory and not time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.memory:
        outcome = memory(options)
        print(json.dumps(outcome, indent=1) if options.json else memory_table(outcome))
        return 0
    if "RANK" not in os.environ:
        return spawn()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    outcome = measure(options)
    if dist.get_rank() == 0:
        print(json.dumps(outcome, indent=1) if options.json else table(outcome))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
