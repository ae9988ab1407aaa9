#!/usr/bin/env python3
"""Collects the curves of `thinwire compare` in the form that bench/adam.py --json writes, for bench/plot.py.

    python3 bench/curves.py runs/adamw bench/results/adam.json    # the folder given to compare as --output
"""

import json
import sys
from pathlib import Path


def curve_of(metrics: Path) -> "dict | None":
    """One run: its settings, and step, loss and bytes sent by worker 0 at each evaluation. None if it has no end."""
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    run = next(event for event in events if event["event"] == "run")
    end = next((event for event in events if event["event"] == "end"), None)
    if end is None:
        return None
    points = [(event["step"], event["loss"], event["sent"]) for event in events if event["event"] == "evaluation"]
    return {
        "way": run["name"],
        "seed": run["seed"],
        "parameters": run["parameters"],
        "workers": run["workers"],
        "loss": round(end["loss"], 4),
        "perplexity": round(end["value"], 4),
        "bytes_less": round(end["wire_ratio"], 2),
        "curve": [[step, round(loss, 4), sent] for step, loss, sent in points],
    }


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(Path, sys.argv[1:])
    runs = [run for run in map(curve_of, sorted(source.glob("*/metrics.jsonl"))) if run]
    if not runs:
        expected = "expected folders with metrics.jsonl, as `thinwire compare` makes"
        print(f"{source} has no finished runs; {expected}", file=sys.stderr)
        return 1
    target.write_text(json.dumps({"settings": {"ranks": runs[0]["workers"]}, "runs": runs}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
