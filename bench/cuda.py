#!/usr/bin/env python3
"""Selection on a GPU and a DDP step of ResNet-50, against the memory's speed, PyTorch's own ways, and plain DDP.

    python3 bench/cuda.py --thinwire target/release/thinwire     # everything, into bench/results/cuda.json
    python3 bench/cuda.py --parts ddp                            # of that, only the DDP step; the rest stays as it was
    python3 bench/cuda.py --device cpu                           # the same in small on the CPU, to try the script

copy      what the memory can do: bytes read and written by a copy. One walk of a selector reads gradient and residual
          and writes the residual, 12 bytes an element: that is the floor.
torch     one step as one writes it with PyTorch: add the gradient to the residual, choose 0.1 %, take the values, clear
          them. The fastest way that keeps 2/3 to 4/3 of that is what thinwire is compared with.
thinwire  the same by thinwire's selectors: `thinwire bench select --device cuda`.
ddp       a training step of ResNet-50 on one rank over NCCL, with the hook and without, in turns.

Times are medians, by CUDA events, after a warm-up. Every step has a new gradient that drifts; making it is not timed.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RESULTS = Path(__file__).parent / "results" / "cuda.json"
PARTS = ["copy", "torch", "thinwire", "ddp"]
#: VGG-16 and ResNet-50.
ELEMENTS = [138_357_544, 25_557_032]
DENSITY = 0.001
#: A walk: gradient and residual read, residual written.
BYTES = 12
WAYS: "dict[str, dict[str, Any]]" = {
    "default": {},
    "topk 0.1 %": {"method": "topk", "density": DENSITY},
    "gaussian-k 0.1 %": {"method": "gaussian-k", "density": DENSITY},
}
#: The same, with the GPU waiting for the means and not the host: until the optimiser is done, or through the next
#: forward pass.
WAYS.update(
    {
        f"{name}, ahead{how}": {**settings, "run_ahead": run_ahead}
        for how, run_ahead in (("", True), (" through forward", "forward"))
        for name, settings in WAYS.items()
    }
)
#: How much longer than DDP's own a step with the hook may be.
ALLOWED = 1.03


def time_each(prepare: "Callable[[int], Any]", work: "Callable[[Any], Any]", repeat: int, device: str) -> "list[float]":
    """Milliseconds of each call of `work` with what `prepare` has made; the first five warm up."""
    times = []
    for number in range(5 + repeat):
        given = prepare(number)
        if device == "cuda":
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # While the GPU is busy with this, launches queue up: they are not what is measured.
            torch.cuda._sleep(1_000_000)
            begin.record()
            work(given)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            begun = time.perf_counter()
            work(given)
            times.append(1000 * (time.perf_counter() - begun))
    return times[5:]


class Gradients:
    """New gradients, step by step: a part that lasts, noise, and a size that drifts."""

    def __init__(self, elements: int, device: str) -> None:
        self._lasting = torch.randn(elements, device=device) * 0.3
        #: Several, so that none is left in a cache.
        self._buffers = [torch.empty(elements, device=device) for _ in range(4)]

    def __call__(self, step: int) -> torch.Tensor:
        gradient = self._buffers[step % len(self._buffers)]
        return gradient.normal_().add_(self._lasting).mul_(1 + 0.2 * ((7 * step) % 10) / 10)


def by_topk(gradient: torch.Tensor, residual: torch.Tensor, k: int) -> torch.Tensor:
    """Exact."""
    residual.add_(gradient)
    return take(residual, torch.topk(residual.abs(), k, sorted=False).indices)


def by_sample(gradient: torch.Tensor, residual: torch.Tensor, k: int) -> torch.Tensor:
    """As the authors of DGC do it: a threshold from every hundredth element, and top-k where that gives too many."""
    residual.add_(gradient)
    size = residual.abs()
    sample = size[k % 100 :: 100]
    threshold = torch.topk(sample, max(1, k // 100), sorted=False).values.min()
    indices = (size >= threshold).nonzero().view(-1)
    if len(indices) > 4 * k // 3:
        indices = indices[torch.topk(size[indices], k, sorted=False).indices]
    return take(residual, indices)


def by_distribution(gradient: torch.Tensor, residual: torch.Tensor, k: int) -> torch.Tensor:
    """As the authors of Gaussian-k do it: a threshold from mean and deviation, corrected up to three times."""
    residual.add_(gradient)
    deviation, mean = torch.std_mean(residual)
    quantile = statistics.NormalDist().inv_cdf(1 - k / residual.numel() / 2)
    threshold, size = mean + quantile * deviation, residual.abs()
    for _ in range(3):
        count = int((size > threshold).sum())
        if 2 * k / 3 <= count <= 4 * k / 3:
            break
        threshold = threshold * (0.5 if count < k else 1.5)
    return take(residual, (size > threshold).nonzero().view(-1))


def take(residual: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    values = residual[indices]
    residual.index_fill_(0, indices, 0.0)
    return values


TORCH = {
    "torch.topk": by_topk,
    "threshold from a sample (DGC)": by_sample,
    "threshold from the distribution (Gaussian-k)": by_distribution,
}


def row(name: str, times: "list[float]", **more: Any) -> "dict[str, Any]":
    return {"name": name, "median_ms": statistics.median(times), "least_ms": min(times), "repeat": len(times), **more}


def copies(options: argparse.Namespace) -> "dict[str, Any]":
    """What the memory can do, by copies of the largest size."""
    elements = max(options.elements)
    made, into = Gradients(elements, options.device), torch.empty(elements, device=options.device)
    copied = row("copy", time_each(made, into.copy_, options.repeat, options.device))
    copied["elements"] = elements
    copied["bytes_per_second"] = 8 * elements / (copied["median_ms"] / 1000)
    return copied


def torch_ways(options: argparse.Namespace) -> "list[dict[str, Any]]":
    rows = []
    for elements in options.elements:
        k, made = max(1, int(DENSITY * elements)), Gradients(elements, options.device)
        residual = torch.zeros(elements, device=options.device)
        times = time_each(made, residual.add_, options.repeat, options.device)
        rows.append(row("r += g", times, by="torch", elements=elements))
        for name, way in TORCH.items():
            residual, kept = torch.zeros(elements, device=options.device), []

            def work(gradient: torch.Tensor) -> None:
                kept.append(way(gradient, residual, k).numel())  # noqa: B023

            times = time_each(made, work, options.repeat, options.device)
            counts = [count / k for count in kept[5:]]
            found = {"kept_least": min(counts), "kept_median": statistics.median(counts), "kept_most": max(counts)}
            rows.append(row(name, times, by="torch", elements=elements, **found))
    return rows


def thinwire_ways(options: argparse.Namespace) -> "list[dict[str, Any]]":
    rows = []
    for elements in options.elements:
        command = [options.thinwire, "bench", "select", "--json", "--elements", str(elements)]
        command += ["--density", str(DENSITY), "--steps", str(options.repeat), "--device", options.device]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr or done.stdout}")
        # Beside JSON there may be words.
        told = json.loads(done.stdout[done.stdout.index("{") :])
        for each in told["rows"]:
            k = each.get("asked") or 0
            kept = {f"kept_{end}": each.get(f"kept_{end}", 0) / k for end in ("least", "most")} if k else {}
            name = each.get("selector") or f"{each['what']}, {each['gradient']}"
            each.setdefault("median_ms", each.get("device_ms"))
            rows.append({**each, "name": name, "by": "thinwire", "elements": elements, **kept})
    return rows


def resnet50(device: str) -> "tuple[nn.Module, tuple[int, ...]]":
    if device != "cuda":
        network = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Flatten())
        return network.append(nn.Linear(64 * 7 * 7, 100)), (8, 3, 32, 32)
    from torchvision.models import resnet50 as network50

    return network50().to(device), (64, 3, 224, 224)


def ddp_steps(options: argparse.Namespace) -> "dict[str, Any]":
    """Milliseconds of a step: each way has a model of its own, with the same weights, and they take turns."""
    import thinwire.torch as tw

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    backend = "nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=address, rank=0, world_size=1)
    models: "dict[str, Any]" = {}
    for way in ["ddp", *WAYS]:
        torch.manual_seed(1)
        network, shape = resnet50(options.device)
        ddp = DistributedDataParallel(network, gradient_as_bucket_view=options.bucket_view)
        sync = tw.compress(ddp, **WAYS[way]) if way in WAYS else None
        models[way] = ddp, torch.optim.SGD(ddp.parameters(), 0.01, momentum=0.9), sync
    batches = [torch.randn(shape, device=options.device) for _ in range(4)]
    labels = torch.randint(100, (shape[0],), device=options.device)

    def block(way: str, steps: int) -> "tuple[list[float], float]":
        """The steps' times, and the milliseconds of one by the clock on the wall."""
        ddp, optimizer, _ = models[way]
        marks: "list[Any]" = []

        def mark() -> None:
            if options.device == "cuda":
                marks.append(torch.cuda.Event(enable_timing=True))
                marks[-1].record()
            else:
                marks.append(1000 * time.perf_counter())

        wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
        wait()
        begun = time.perf_counter()
        mark()
        for step in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(batches[step % len(batches)]), labels).backward()
            optimizer.step()
            mark()
        wait()
        wall = 1000 * (time.perf_counter() - begun) / steps
        pairs = zip(marks, marks[1:])
        return [a.elapsed_time(b) if options.device == "cuda" else b - a for a, b in pairs], wall

    times: "dict[str, list[float]]" = {way: [] for way in models}
    walls: "dict[str, list[float]]" = {way: [] for way in models}
    for number in range(options.rounds + 1):
        for way in models:
            taken, wall = block(way, options.steps)
            # The first round warms up.
            times[way] += taken if number else []
            walls[way] += [wall] if number else []
    rows = [row(way, taken, wall_ms=statistics.median(walls[way])) for way, taken in times.items()]
    for each in rows:
        each["of_ddp"] = each["median_ms"] / rows[0]["median_ms"]
        each["of_ddp_by_rounds"] = statistics.median(a / b for a, b in zip(walls[each["name"]], walls["ddp"]))
        sync = models[each["name"]][2]
        if sync is not None:
            each["report"] = sync.report().as_dict()
            sync.close()
    dist.destroy_process_group()
    allowed = {"matmul": torch.backends.cuda.matmul.allow_tf32, "convolutions": torch.backends.cudnn.allow_tf32}
    return {
        "network": "ResNet-50" if options.device == "cuda" else "a small stand-in",
        "batch": list(shape),
        "backend": backend,
        "tf32": allowed,
        "bucket_view": options.bucket_view,
        "rows": rows,
    }


def compare(outcome: "dict[str, Any]") -> None:
    """Adds how often the floor a time is, and how much faster than PyTorch's best way."""
    rate = outcome.get("copy", {}).get("bytes_per_second")
    for rows in (outcome.get("torch", []), outcome.get("thinwire", [])):
        for each in rows:
            if "ratio" in each:
                # The program knows the bytes that each of its ways has to move, by a copy of its own.
                each["of_floor"] = each["ratio"]
            elif rate:
                each["floor_ms"] = 1000 * BYTES * each["elements"] / rate
                each["of_floor"] = each["median_ms"] / each["floor_ms"]
            ways = [way for way in outcome.get("torch", []) if way["elements"] == each["elements"] and keeps_k(way)]
            if ways and each["name"] != "r += g":
                best = min(ways, key=lambda way: way["median_ms"])
                each["best_torch"], each["faster_than_torch"] = best["name"], best["median_ms"] / each["median_ms"]


def keeps_k(way: "dict[str, Any]") -> bool:
    """Whether it chooses about what was asked: a way that misses that by far does something else."""
    return 2 / 3 <= way.get("kept_median", 0) <= 4 / 3


def table(outcome: "dict[str, Any]") -> str:
    lines = [f"{outcome['device']}, torch {outcome['versions']['torch']}"]
    if "copy" in outcome:
        lines.append(f"copy: {outcome['copy']['bytes_per_second'] / 1e12:.3f} TB/s read and written")
    rows = outcome.get("torch", []) + outcome.get("thinwire", [])
    if rows:
        lines.append(f"\n{'a step at 0.1 %':<56}{'elements':>12}{'ms':>9}{'× floor':>9}{'× torch':>9}  kept / k")
    for each in rows:
        floor = f"{each['of_floor']:.2f}" if "of_floor" in each else ""
        faster = f"{each['faster_than_torch']:.1f}" if "faster_than_torch" in each else ""
        kept = f"{each['kept_least']:.2f}-{each['kept_most']:.2f}" if each.get("kept_most") else ""
        name = f"{each['by']}: {each['name']}"
        lines.append(
            f"{name[:55]:<56}{each['elements']:>12,}{each['median_ms']:>9.3f}{floor:>9}{faster:>9}  {kept}".rstrip()
        )
    if "ddp" in outcome:
        lines.append(f"\n{'DDP step, ' + outcome['ddp']['network']:<24}{'ms':>9}{'of DDP':>9}{'by rounds':>11}")
    for each in outcome.get("ddp", {}).get("rows", []):
        verdict = "" if each["name"] == "ddp" else "  ok" if each["of_ddp"] <= ALLOWED else f"  above {ALLOWED}"
        lines.append(
            f"{each['name']:<24}{each['median_ms']:>9.2f}{each['of_ddp']:>9.4f}{each['of_ddp_by_rounds']:>11.4f}{verdict}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="what to measure; all if not given")
    parser.add_argument("--thinwire", metavar="PROGRAM", help="thinwire's program, for its selectors")
    parser.add_argument("--elements", type=int, nargs="+", help=f"sizes of the gradient ({ELEMENTS})")
    parser.add_argument("--repeat", type=int, default=40, help="timed steps of a selection (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="how often the ways of DDP take turns (%(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="steps in a turn (%(default)s)")
    parser.add_argument("--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: in small, to try the script")
    parser.add_argument("--output", type=Path, help=f"the JSON ({RESULTS}); parts not measured stay in it")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here (torch.cuda.is_available() is False); --device cpu tries the script")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    options.elements = options.elements or (ELEMENTS if options.device == "cuda" else [1_000_000, 100_000])
    parts = options.parts or [part for part in PARTS if part != "thinwire" or options.thinwire]
    if "thinwire" in parts and not options.thinwire:
        raise SystemExit("the part 'thinwire' needs the program: --thinwire target/release/thinwire")
    output = options.output or (RESULTS if options.device == "cuda" else None)
    outcome: "dict[str, Any]" = {}
    if output and output.exists():
        outcome = json.loads(output.read_text())
    outcome.update(versions={"torch": torch.__version__, "cuda": torch.version.cuda}, density=DENSITY)
    outcome["device"] = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    measure = {"copy": copies, "torch": torch_ways, "thinwire": thinwire_ways, "ddp": ddp_steps}
    failed = False
    for part in parts:
        begun = time.perf_counter()
        try:
            outcome[part] = measure[part](options)
        except Exception:  # The other parts are worth having without it.
            traceback.print_exc()
            failed = True
        if options.device == "cuda":
            torch.cuda.empty_cache()
        compare(outcome)
        # What is measured is kept, whatever comes next.
        if output:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(outcome, indent=1) + "\n")
        print(f"{part}: measured in {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)
    print(table(outcome))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
