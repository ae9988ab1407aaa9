"""Draws bench/results/*.json: docs/select.svg, one step of every selector beside `r += g` and PyTorch, and
docs/step.svg, one whole step of every method over a link of 1 Gbit/s; docs/adam.svg, the loss of a GPT under AdamW
against steps and bytes.

    python3 bench/plot.py            # needs nothing but Python
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent
WIDTH, LEFT, RIGHT, ROW, TOP = 860, 250, 90, 30, 70
# Okabe and Ito's colours: they print, and colour-blind people can tell them apart.
GREY, BLUE, ORANGE = "#999999", "#0072B2", "#E69F00"


def select_bars() -> list[tuple[str, float, str, str]]:
    select = json.loads((ROOT / "results/select.json").read_text())
    torch = json.loads((ROOT / "results/torch-topk.json").read_text())
    rows = [row for row in select["rows"] if row["threads"] == 1]
    named = []
    for row in rows:
        plain = row["selector"] == "r += g"
        label = "r += g: the least there is to do" if plain else row["selector"]
        beside = f"{row['median_ms']:.1f} ms" if plain else f"{row['median_ms']:.1f} ms, {row['ratio']:.2f}×"
        named.append((label, row["median_ms"], GREY if plain else BLUE, beside))
    theirs = next(row for row in torch["rows"] if row["threads"] == 1)["torch_ms"]
    named.append(("PyTorch: add, topk, clear", theirs, ORANGE, f"{theirs:.0f} ms"))
    return named


def step_bars() -> list[tuple[str, float, str, str]]:
    rows = json.loads((ROOT / "results/step-1gbit.json").read_text())["rows"]
    named = []
    for row in rows:
        dense = row["method"] == "dense"
        beside = f"{row['step_ms']:.0f} ms" + ("" if dense else f", {row['speed_up']:.1f}× faster")
        named.append((row["method"], row["step_ms"], ORANGE if dense else BLUE, beside))
    return named


def draw(title: str, below: str, tick: int, named: list[tuple[str, float, str, str]]) -> str:
    longest = max(ms for _, ms, _, _ in named)
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + ROW * len(named) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="20" y="28" font-size="17" font-weight="bold">{escape(title)}</text>',
        f'<text x="20" y="50" fill="#555">{escape(below)}</text>',
    ]
    y = TOP + ROW * len(named) + 8
    for ms in range(0, int(longest) + 1, tick):
        x = LEFT + ms * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{y}" stroke="#ddd" stroke-width="1"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16}" text-anchor="middle" fill="#555">{ms} ms</text>')
    for number, (label, ms, colour, beside) in enumerate(named):
        y = TOP + ROW * number
        length = max(1.0, ms * scale)
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 19}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y + 5}" width="{length:.1f}" height="{ROW - 10}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 19}" fill="#333">{escape(beside)}</text>',
        ]
    return "\n".join(parts + ["</svg>", ""])


COLOURS = ["#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#999999"]


def curves(title: str, below: str, runs: "list[dict]") -> str:
    """Mean loss over the seeds, against steps and against megabytes sent (on a logarithmic scale)."""
    ways = list(dict.fromkeys(run["way"] for run in runs))
    means = {}
    for way in ways:
        points = zip(*(run["curve"] for run in runs if run["way"] == way))
        means[way] = [[sum(values) / len(values) for values in zip(*point)] for point in points]
    everything = [point for points in means.values() for point in points]
    low, high = min(loss for _, loss, _ in everything), max(loss for _, loss, _ in everything)
    steps = max(step for step, _, _ in everything)
    least = math.floor(math.log10(min(sent for _, _, sent in everything) / 1e6))
    most = math.ceil(math.log10(max(sent for _, _, sent in everything) / 1e6))
    panel, height, top, left = 360, 300, 80, 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + height + 80 + 20 * (len(ways) // 2)}"'
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="28" font-size="17" font-weight="bold">{escape(title)}</text>',
        f'<text x="20" y="50" fill="#555">{escape(below)}</text>',
    ]

    def y_of(loss: float) -> float:
        return top + height - (loss - low) / (high - low) * (height - 10)

    Place = Callable[[list[float]], float]

    def panel_of(x: float, name: str, ticks: "list[tuple[float, str]]", place: "Place") -> None:
        bottom = top + height
        parts.append(f'<path d="M{x} {top}V{bottom}H{x + panel}" fill="none" stroke="#333"/>')
        parts.append(f'<text x="{x + panel / 2}" y="{bottom + 36}" text-anchor="middle" fill="#555">{name}</text>')
        for share, label in ticks:
            at = x + share * panel
            parts.append(f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle" fill="#555">{label}</text>')
        for number in range(5):
            loss = low + number * (high - low) / 4
            y = y_of(loss) + 4
            parts.append(f'<text x="{x - 6}" y="{y:.1f}" text-anchor="end" fill="#555">{loss:.2f}</text>')
        for colour, way in zip(COLOURS, ways):
            line = " ".join(f"{x + panel * place(point):.1f},{y_of(point[1]):.1f}" for point in means[way])
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')

    panel_of(left, "steps", [(n / 4, f"{steps * n / 4:.0f}") for n in range(5)], lambda point: point[0] / steps)
    decades = [(n / (most - least), f"{10 ** (least + n):g}") for n in range(most - least + 1)]
    panel_of(
        left + panel + 70,
        "megabytes sent by a rank",
        decades,
        lambda point: (math.log10(point[2] / 1e6) - least) / (most - least),
    )
    for number, (colour, way) in enumerate(zip(COLOURS, ways)):
        x, y = left + 400 * (number % 2), top + height + 58 + 20 * (number // 2)
        parts.append(f'<rect x="{x}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 24}" y="{y}">{escape(way)}</text>')
    return "\n".join(parts + ["</svg>", ""])


if __name__ == "__main__":
    docs = ROOT.parent / "docs"
    title = "One step of selection with residual, one CPU thread"
    below = "25,557,032 elements (ResNet-50), 0.1 % kept; 1.15× means 15 % more time than r += g"
    (docs / "select.svg").write_text(draw(title, below, 50, select_bars()))
    title = "One whole step over 1 Gbit/s: compress, exchange, decompress"
    below = "25.6 M elements, 4 ranks on 2 cores, each behind a real link shaped to 1 Gbit/s"
    (docs / "step.svg").write_text(draw(title, below, 250, step_bars()))
    adam = json.loads((ROOT / "results/adam.json").read_text())
    seeds = len({run["seed"] for run in adam["runs"]})
    title = "A GPT under AdamW: loss on the test set against steps and bytes"
    size = adam["runs"][0]["parameters"] / 1e6
    below = f"{size:.2g} M parameters, {adam['settings']['ranks']} ranks, the mean of {seeds} seeds"
    (docs / "adam.svg").write_text(curves(title, below, adam["runs"]))
