"""Draws docs/axes.svg: the six axes with their choices, and the published systems as lines through them.

What cannot be chosen yet is dashed: boxes of choices, lines of systems that need one of them.

python docs/axes.py
"""

from __future__ import annotations

import itertools
from pathlib import Path
from xml.sax.saxutils import escape

AXES = {
    "store": ["full", "delta"],
    "placement": [
        "time blocks",
        "by snapshot",
        "by sequence",
        "snapshot, sequence",
        "metis",
        "metis per snapshot",
        "metis so far",
        "greedy",
        "hash",
        "replicated",
        "chunks",
        "load-aware",
        "online",
    ],
    "batching": ["full", "fused chunks", "windows", "vertices", "groups", "hybrid", "trapezoid", "sampled windows"],
    "exchange": [
        "halo + relay",
        "halo",
        "relay",
        "shuffle",
        "fetch + shuffle",
        "none",
        "stale halo",
        "cached",
        "overlapped halo",
    ],
    "schedule": ["in order", "greedy, optimal", "random split", "free-running"],
    "sync": ["all-reduce", "average by steps", "average by timer"],
}
SYSTEMS = {
    "DGC": ("#4e79a7", ["full", "chunks", "fused chunks", "stale halo", "in order", "all-reduce"]),
    "DynaHB": ("#f28e2b", ["full", "load-aware", "hybrid", "cached", "free-running", "average by timer"]),
    "DyGNeX": ("#59a14f", ["full", "replicated", "groups", "none", "greedy, optimal", "all-reduce"]),
    "DistDy": ("#b07aa1", ["delta", "online", "sampled windows", "fetch + shuffle", "in order", "all-reduce"]),
    "FlareDTDG": ("#9c755f", ["full", "metis", "trapezoid", "overlapped halo", "random split", "all-reduce"]),
    "relay (ours)": ("#e15759", ["full", "time blocks", "full", "halo + relay", "in order", "all-reduce"]),
}
LEFT, TOP, COLUMN, ROW, BOX_W, BOX_H = 20, 48, 176, 36, 138, 24


def place(axis: int, choice: str) -> tuple[float, float]:
    """Where a choice stands: the middle of the left edge of its box."""
    choices = list(AXES.values())[axis]
    return LEFT + axis * COLUMN, TOP + choices.index(choice) * ROW + BOX_H / 2


def line(number: int, name: str, colour: str, choices: list[str]) -> str:
    """A system's way through its choices; systems that share a box run side by side."""
    shift = (number - (len(SYSTEMS) - 1) / 2) * 3.4
    corners = [place(axis, choice) for axis, choice in enumerate(choices)]
    path = f"M {corners[0][0]:.1f} {corners[0][1] + shift:.1f} h {BOX_W}"
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        bend, y = x0 + BOX_W + 22, y1 + shift
        path += f" C {bend:.1f} {y0 + shift:.1f} {x1 - 22:.1f} {y:.1f} {x1:.1f} {y:.1f} h {BOX_W}"
    drawn = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2.4">'
    return f"{drawn}<title>{escape(name)}</title></path>"


def draw() -> str:
    """The picture."""
    parts = []
    for axis, (name, choices) in enumerate(AXES.items()):
        x = LEFT + axis * COLUMN
        parts.append(f'<text x="{x + BOX_W / 2}" y="{TOP - 16}" class="axis">{name}</text>')
        for choice in choices:
            _, y = place(axis, choice)
            parts.append(f'<rect x="{x}" y="{y - BOX_H / 2}" width="{BOX_W}" height="{BOX_H}" rx="7" class="box"/>')
    parts += [line(number, name, *drawn) for number, (name, drawn) in enumerate(SYSTEMS.items())]
    for axis, choices in enumerate(AXES.values()):
        for choice in choices:
            x, y = place(axis, choice)
            parts.append(f'<text x="{x + BOX_W / 2}" y="{y + 4}" class="choice">{choice}</text>')
    width, height = LEFT * 2 + COLUMN * (len(AXES) - 1) + BOX_W, TOP + max(map(len, AXES.values())) * ROW + 34
    for number, (name, (colour, _)) in enumerate(SYSTEMS.items()):
        x, y = LEFT + number * (width - 2 * LEFT) / len(SYSTEMS), height - 20
        parts.append(f'<path d="M {x} {y - 8} h 25" stroke="{colour}" stroke-width="4"/>')
        parts.append(f'<text x="{x + 31}" y="{y - 3}" class="name">{escape(name)}</text>')
    style = (
        "text{font-family:system-ui,sans-serif;fill:#222}.axis{font-size:17px;font-weight:600;text-anchor:middle}"
        ".choice{font-size:13px;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:4px}.name{font-size:14px}"
        ".box{fill:#f2f4f7;stroke:#c9d0d9}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Six axes with their choices; every published system is a line through them">'
        f'<style>{style}</style><rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("axes.svg").write_text(draw())
