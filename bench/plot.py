"""Draws bench/results/*.json: docs/select.svg, one step of every selector beside `r += g` and PyTorch, and
docs/step.svg, one whole step of every method over a link of 1 Gbit/s.

    python3 bench/plot.py            # needs nothing but Python
"""

import json
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


if __name__ == "__main__":
    docs = ROOT.parent / "docs"
    title = "One step of selection with residual, one CPU thread"
    below = "25,557,032 elements (ResNet-50), 0.1 % kept; 1.15× means 15 % more time than r += g"
    (docs / "select.svg").write_text(draw(title, below, 50, select_bars()))
    title = "One whole step over 1 Gbit/s: compress, exchange, decompress"
    below = "25.6 M elements, 4 ranks on 2 cores, each behind a real link shaped to 1 Gbit/s"
    (docs / "step.svg").write_text(draw(title, below, 250, step_bars()))
