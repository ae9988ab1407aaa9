#!/usr/bin/env python3
"""Puts the tables of docs/results.md in place, from the JSON of `thinwire compare` in bench/results.

    python3 bench/results.py

A table stands between the lines `<!-- table NAME -->` and `<!-- end -->`; NAME is the name of the JSON file, and
`NAME target` adds the time to the target.
"""
import json
import re
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def spread(values, text):
    mean = text(statistics.mean(values))
    return mean if len(values) == 1 else f"{mean} ± {text(statistics.stdev(values))}"


def mean(runs, figure):
    values = [run["end"][figure] for run in runs if run["end"][figure] is not None]
    return statistics.mean(values) if values else None


def ratio(value):
    return "-" if value is None else f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def size(count):
    for unit in ["B", "kB", "MB", "GB"]:
        if count < 999.5 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000


def table(name, target):
    figures = json.loads((ROOT / "bench/results" / f"{name}.json").read_text())
    by_method = {}
    for run in figures["runs"]:
        by_method.setdefault(run["run"]["name"], []).append(run)
    perplexity = figures["runs"][0]["run"]["measure"] == "perplexity"
    dense = by_method.get("dense")
    dense = statistics.mean(run["end"]["value"] for run in dense) if dense else None
    head = ["method", "perplexity" if perplexity else "accuracy", "against dense", "sent", "wire ratio"]
    head += ["after warm-up", "compressed layers", "messages for these", "values alone"]
    if target:
        head = ["method", "accuracy", "time of a step", "speed-up", "time to target", "faster"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    rows = {row["name"]: row for row in figures["methods"]}
    for method, runs in by_method.items():
        values = [run["end"]["value"] for run in runs]
        own = statistics.mean(values)
        if dense is None:
            value, against = spread(values, lambda x: f"{100 * x:.2f} %"), ""
        elif perplexity:
            value, against = spread(values, lambda x: f"{x:.3f}"), f"{100 * (own / dense - 1):+.2f} %"
        else:
            value, against = spread(values, lambda x: f"{100 * x:.2f} %"), f"{100 * (own - dense):+.2f} points"
        if target:
            row, first = rows[method], rows["dense"]
            time, reference = row["seconds_to_target"], first["seconds_to_target"]
            cells = [f"{1000 * row['seconds_per_step']:.1f} ms", ratio(row["speedup_against_dense"]),
                     "-" if time is None else f"{time:.1f} s",
                     "-" if None in (time, reference) else ratio(reference / time)]
            lines.append("| " + " | ".join([f"`{method}`", value, *cells]) + " |")
            continue
        cells = [size(mean(runs, "sent")), *(ratio(mean(runs, figure)) for figure in (
            "wire_ratio", "wire_ratio_settled", "wire_ratio_compressed", "message_ratio_compressed", "value_ratio"))]
        against = "" if method == "dense" else against
        lines.append("| " + " | ".join([f"`{method}`", value, against, *cells]) + " |")
    return "\n".join(lines)


def main():
    page = ROOT / "docs/results.md"
    pattern = re.compile(r"(<!-- table (\S+)( target)? -->\n).*?(<!-- end -->)", re.S)
    text = pattern.sub(lambda m: m[1] + table(m[2], bool(m[3])) + "\n" + m[4], page.read_text())
    page.write_text(text)


if __name__ == "__main__":
    main()
