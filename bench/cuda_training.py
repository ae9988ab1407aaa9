#!/usr/bin/env python3
"""What ResNet-20 on Fashion-MNIST reaches with each method, against plain DDP: four ranks share one GPU, over Gloo.

    python3 bench/cuda_training.py                               # six ways, two seeds each, 30 epochs
    python3 bench/cuda_training.py --runs ddp,redsync --seeds 1
    python3 bench/cuda_training.py --runs ddp ar-topk:density=0.01,warmup=linear/10/1/0.01
    python3 bench/cuda_training.py --device cpu --ranks 2 --jobs 1 --epochs 1 --train-limit 2000    # to try it

Several trainings go on at once, each in processes of its own, which share the GPU by NVIDIA MPS if it can be started.
Results are written as runs finish; the table comes last.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Optional

RESULTS = Path(__file__).parent / "results" / "cuda-training.json"
#: How each way begins: the density falls in the first epochs, while the weights move fast. `ar-topk` moves one rank's
#: coordinates a step and needs the longest ramp.
RECIPES: "dict[str, Optional[str]]" = {
    "ddp": None,
    "redsync": "redsync:density=0.001,warmup=dense/5",
    "gaussian-k": "gaussian-k:density=0.001,warmup=dense/5",
    "ar-topk": "ar-topk:density=0.01,warmup=linear/12/1/0.01",
    "iwp": "iwp:density=1/64,dense_up_to=8192,warmup=linear/5/1/0.016",
    "fft": "fft",
}
#: Points that a method may stay behind DDP.
ALLOWED = 0.3

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["torch", "torch._dynamo", "torch.nn.parallel", "thinwire.torch", "resnet20"])


class Lane:
    """The processes of one training at a time; they stay for the next."""

    def __init__(self, options: argparse.Namespace) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.pipes: "list[Connection]" = []
        self.processes = []
        for rank in range(options.ranks):
            here, there = processes.Pipe()
            process = processes.Process(target=rank_main, args=(rank, port, vars(options), there), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)
        self.run: "Optional[dict[str, Any]]" = None

    def start(self, job: Any) -> "dict[str, Any]":
        self.run = {"name": job.name, "method": job.method, "seed": job.seed, "finished": False, "epochs": []}
        self.ends: "list[dict[str, Any]]" = []
        for pipe in self.pipes:
            pipe.send(job)
        return self.run

    def hear(self, rank: int) -> Optional[str]:
        """Takes in what a rank says; returns what went wrong."""
        try:
            kind, what = self.pipes[rank].recv()
        except (EOFError, OSError):
            self.processes[rank].join(5)
            return f"rank {rank} ended with {self.processes[rank].exitcode}"
        if kind == "failed":
            return f"rank {rank}: {what}"
        if kind == "epoch":
            assert self.run is not None
            self.run["epochs"].append(what)
            accuracy = f", accuracy {100 * what['accuracy']:.2f} %" if "accuracy" in what else ""
            where = f"{self.run['name']}, seed {self.run['seed']}, epoch {what['epoch']}"
            print(f"{where}: loss {what['loss']:.4f}{accuracy}, {what['seconds']:.1f} s", flush=True)
        else:
            self.ends.append(what)
            if len(self.ends) == len(self.pipes):
                self.finish()
        return None

    def finish(self) -> None:
        assert self.run is not None
        first = next(end for end in self.ends if end["accuracy"] is not None)
        equal = len({end.pop("weights") for end in self.ends}) == 1
        self.run.update(first, finished=True, replicas_equal=equal)
        self.run = None

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            # An idle one ends by itself.
            if self.run is None:
                process.join(5)
            process.kill()
        for process in self.processes:
            process.join()


def rank_main(rank: int, port: int, options: "dict[str, Any]", pipe: Connection) -> None:
    """A rank: does one training after the other."""
    import resnet20
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        if options["device"] == "cuda":
            torch.cuda.set_device(0)
        address, ranks = f"tcp://127.0.0.1:{port}", options["ranks"]
        dist.init_process_group("gloo", address, timedelta(seconds=120), ranks, rank)
        data = resnet20.Data(Path(options["data"]), options["device"], options["train_limit"])
        while True:
            job = pipe.recv()
            for figures in resnet20.train(job, data):
                if "weights" in figures:
                    pipe.send(("end", figures))
                elif rank == 0:
                    pipe.send(("epoch", figures))
    except EOFError:
        os._exit(0)
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


def run_all(jobs: "list[Any]", options: argparse.Namespace, outcome: "dict[str, Any]") -> None:
    """Does all jobs, several at once, until they are done or the time is over."""
    until = time.monotonic() + (options.limit_seconds or 1e9)
    waiting = list(jobs)
    lanes = [Lane(options) for _ in range(min(options.jobs, len(jobs)))]
    try:
        while time.monotonic() < until:
            for lane in lanes:
                if lane.run is None and waiting:
                    outcome["runs"].append(lane.start(waiting.pop(0)))
            busy = [lane for lane in lanes if lane.run is not None]
            if not busy:
                return
            said = {pipe: (lane, rank) for lane in busy for rank, pipe in enumerate(lane.pipes)}
            for pipe in wait(list(said), min(1.0, max(0.0, until - time.monotonic()))):
                lane, rank = said[pipe]  # type: ignore[index]
                # Another rank of this lane may just have ended it.
                wrong = lane.hear(rank) if lane.run is not None else None
                if wrong is not None and lane.run is not None:
                    print(f"{lane.run['name']}, seed {lane.run['seed']} failed: {wrong}", file=sys.stderr, flush=True)
                    lane.run["failed"] = wrong
                    lane.end()
                    lanes[lanes.index(lane)] = Lane(options)
                    lane.run = None
                if lane.run is None:
                    write(outcome, options)
        print(f"the {options.limit_seconds:g} seconds are over", flush=True)
    finally:
        for lane in lanes:
            lane.end()


class Mps:
    """NVIDIA's Multi-Process Service: without it the GPU serves one process at a time."""

    def __init__(self, wanted: bool) -> None:
        self.program = shutil.which("nvidia-cuda-mps-control") if wanted else None
        self.running = False

    def __enter__(self) -> "Mps":
        if self.program is None:
            return self
        self.folder = tempfile.mkdtemp(prefix="mps-")
        places = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        os.environ.update(places)
        try:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 60}
            subprocess.run([self.program, "-d"], check=True, **quiet)  # type: ignore[call-overload]
            self.running = True
            # It may start and still serve nobody.
            test = "import torch; torch.ones(1, device='cuda').item()"
            subprocess.run([sys.executable, "-c", test], check=True, **quiet)  # type: ignore[call-overload]
        except (OSError, subprocess.SubprocessError) as error:
            print(f"MPS does not work here, going on without it: {error}", file=sys.stderr)
            self.__exit__()
            for name in places:
                os.environ.pop(name, None)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.running:
            self.running = False
            subprocess.run([str(self.program)], input=b"quit\n", timeout=60, check=False)


def summary(outcome: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Each way, the mean over its seeds, against DDP with the same seeds."""
    done: "dict[str, dict[int, Any]]" = {}
    for run in outcome["runs"]:
        if run["finished"]:
            done.setdefault(run["name"], {})[run["seed"]] = run
    rows = []
    for name, runs in done.items():
        row = {"name": name, "method": next(iter(runs.values()))["method"], "seeds": list(runs)}
        row["accuracies"] = [run["accuracy"] for run in runs.values()]
        row["accuracy"] = statistics.mean(row["accuracies"])
        row["seconds"] = statistics.mean(run["seconds"] for run in runs.values())
        row["replicas_equal"] = all(run["replicas_equal"] for run in runs.values())
        reports = [run["report"] for run in runs.values() if "report" in run]
        row["ratio"] = statistics.mean(report["ratio"] for report in reports) if reports else None
        common = [seed for seed in runs if seed in done.get("ddp", {})]
        if name != "ddp" and common:
            behind = [runs[seed]["accuracy"] - done["ddp"][seed]["accuracy"] for seed in common]
            row["points_against_ddp"] = 100 * statistics.mean(behind)
            row["good_enough"] = row["points_against_ddp"] >= -ALLOWED
        rows.append(row)
    return rows


def table(outcome: "dict[str, Any]") -> str:
    wide = 2 + max([len(row["name"]) for row in outcome["summary"]], default=3)
    lines = [f"{'run':<{wide}}{'accuracy':>10}{'against DDP':>13}{'':>4}{'sent':>10}{'seconds':>9}  seeds"]
    for row in outcome["summary"]:
        against, verdict = "", ""
        if "points_against_ddp" in row:
            against = f"{row['points_against_ddp']:+.2f}"
            verdict = "ok" if row["good_enough"] else "LOW"
        sent = "" if row["ratio"] is None else f"1/{row['ratio']:.3g}"
        seeds = ", ".join(f"{100 * accuracy:.2f} %" for accuracy in row["accuracies"])
        differ = "" if row["replicas_equal"] else "  REPLICAS DIFFER"
        accuracy = f"{100 * row['accuracy']:.2f} %"
        line = f"{row['name']:<{wide}}{accuracy:>10}{against:>13}{verdict:>4}{sent:>10}{row['seconds']:>9.1f}"
        lines.append(f"{line}  {seeds}{differ}")
    unfinished = [f"{run['name']} seed {run['seed']}" for run in outcome["runs"] if not run["finished"]]
    return "\n".join(lines + ([f"not finished: {', '.join(unfinished)}"] if unfinished else []))


def write(outcome: "dict[str, Any]", options: argparse.Namespace) -> None:
    outcome["summary"] = summary(outcome)
    outcome["seconds"] = time.time() - outcome["began"]
    new = Path(f"{options.output}.new")
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(json.dumps(outcome, indent=1) + "\n")
    new.replace(options.output)


def recipes(given: "list[str]") -> "dict[str, Optional[str]]":
    """Names of recipes, or methods written out."""
    chosen: "dict[str, Optional[str]]" = {}
    for entry in given:
        for name in [entry] if ":" in entry else entry.split(","):
            if ":" not in name and name not in RECIPES:
                raise SystemExit(f"there is no run {name!r}; there are: {', '.join(RECIPES)}, and methods written out")
            chosen[name] = RECIPES.get(name, name)
    return chosen


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--runs", nargs="+", default=[",".join(RECIPES)], help=f"of {', '.join(RECIPES)}; or methods written out")
    add("--seeds", default="1,2", help="one training for each (%(default)s)")
    add("--epochs", type=int, default=30)
    add("--jobs", type=int, default=3, help="trainings at once (%(default)s)")
    add("--ranks", type=int, default=4, help="of a training (%(default)s)")
    add("--batch", type=int, default=128, help="samples of a rank in a step (%(default)s)")
    add("--lr", type=float, default=0.1, help="the highest learning rate (%(default)s)")
    add("--lr-warmup", type=float, default=2.0, help="epochs over which it rises, to fall by a cosine (%(default)s)")
    add("--weight-decay", type=float, default=5e-4)
    add("--label-smoothing", type=float, default=0.0)
    add("--precision", choices=["bf16", "fp32"], help="bf16 by autocast on a GPU, fp32 on the CPU")
    add("--evaluate-last", type=int, default=3, help="look at the accuracy after so many last epochs (%(default)s)")
    add("--train-limit", type=int, default=0, help="only so many images, to train and to test")
    add("--limit-seconds", type=float, default=0.0, help="stop after these, and write what there is")
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--no-mps", action="store_true", help="do not try to start NVIDIA MPS")
    add("--data", help="folder of the four idx.gz files (/usr/share/datasets/fashion-mnist, then data/fashion-mnist)")
    add("--output", default=str(RESULTS), help="the JSON (%(default)s)")
    return parser.parse_args()


def main() -> int:
    options = parse()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import resnet20
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here (torch.cuda.is_available() is False); --device cpu tries the script")
    options.data = str(resnet20.folder_of(options.data).resolve())
    shared = {name: getattr(options, name) for name in ("epochs", "batch", "lr", "lr_warmup", "weight_decay")}
    shared.update(label_smoothing=options.label_smoothing, evaluate_last=max(1, options.evaluate_last))
    shared["bf16"] = options.precision == "bf16" or options.precision is None and options.device == "cuda"
    chosen, seeds = recipes(options.runs), [int(seed) for seed in options.seeds.split(",")]
    jobs = [resnet20.Job(name, method, seed, **shared) for seed in seeds for name, method in chosen.items()]
    outcome: "dict[str, Any]" = {"torch": torch.__version__, "began": time.time()}
    outcome["network"] = "ResNet-20, 1 channel, 28x28"
    outcome["parameters"] = sum(p.numel() for p in resnet20.ResNet20().parameters())
    outcome["settings"] = {"ranks": options.ranks, "jobs": options.jobs, "train_limit": options.train_limit, **shared}
    outcome["optimizer"] = "SGD, momentum 0.9, Nesterov (none where the method has the momentum)"
    outcome["jobs"] = [asdict(job) for job in jobs]
    outcome["runs"] = []
    with Mps(options.device == "cuda" and not options.no_mps) as mps:
        outcome["mps"] = mps.running
        print(f"{len(jobs)} trainings, {options.jobs} at once, {'with' if mps.running else 'without'} MPS", flush=True)
        run_all(jobs, options, outcome)
    write(outcome, options)
    print(f"\n{outcome['seconds']:.0f} s in all; JSON in {options.output}\n\n{table(outcome)}")
    return 0 if outcome["runs"] and all(run["finished"] for run in outcome["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
