"""One step of top-k with residual: PyTorch against thinwire, on the same machine, in one run.

PyTorch's way: add the gradient to the residual, torch.topk of the magnitudes, take the values, clear them in
the residual. thinwire's way: `thinwire bench select`, whose exact top-k gives the same coordinates.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch


def torch_step(gradient: torch.Tensor, residual: torch.Tensor, k: int) -> torch.Tensor:
    residual.add_(gradient)
    indices = torch.topk(residual.abs(), k, sorted=False).indices
    values = residual[indices]
    residual[indices] = 0.0
    return values


def median_ms(step, repeat: int) -> float:
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        step()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thinwire", default="target/release/thinwire", help="the program")
    parser.add_argument("--elements", type=int, default=25_557_032)
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--output", help="write the result to this JSON file, too")
    arguments = parser.parse_args()

    k = max(1, int(arguments.elements * arguments.density))
    ours = json.loads(
        subprocess.run(
            [arguments.thinwire, "bench", "select", "--json"]
            + ["--elements", str(arguments.elements), "--density", str(arguments.density)]
            + ["--threads", ",".join(map(str, arguments.threads))],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    rows = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        gradient = torch.randn(arguments.elements)
        residual = torch.randn(arguments.elements)
        theirs = median_ms(lambda: torch_step(gradient, residual, k), arguments.repeat)
        exact = next(r for r in ours["rows"] if r["selector"] == "exact top-k" and r["threads"] == threads)
        rows.append(
            {
                "threads": threads,
                "torch_ms": round(theirs, 2),
                "thinwire_ms": round(exact["median_ms"], 2),
                "times_faster": round(theirs / exact["median_ms"], 1),
            }
        )
        words = "{threads} threads: torch {torch_ms} ms, thinwire {thinwire_ms} ms: {times_faster} times faster"
        print(words.format(**rows[-1]))
    result = {"torch": torch.__version__, "elements": arguments.elements, "density": arguments.density, "rows": rows}
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
