"""When the parts of relayed time stages ran on each rank: how full the pipeline was, in a number and a picture."""

from __future__ import annotations

from collections import defaultdict

from strobe.comm.ledger import Slot
from strobe.palette import PALETTE

Slots = list[list[Slot]]
"""Those of every rank."""

_LEFT, _WIDTH, _ROW, _TOP = 70, 640, 26, 46


def busy_share(slots: Slots) -> float | None:
    """The share of the ranks' time in relayed time stages that they computed, of all passes of training together.

    A stage takes from the moment its first part begins on any rank to the end of its last; None where nothing was
    relayed.
    """
    stages = _stages(slots)
    spans = [max(end for *_, end in parts) - min(began for *_, began, _ in parts) for parts in stages.values()]
    busy = [sum(end - began for *_, began, end in parts) for parts in stages.values()]
    return sum(busy) / (len(slots) * sum(spans)) if spans and sum(spans) > 0 else None


def slots_svg(slots: Slots) -> str | None:
    """A row per rank, a box per part, of the first stage forward and its way back; None where nothing was relayed."""
    stages = _stages(slots)
    if not stages:
        return None
    first = min(number for _, number in stages)
    parts = [(rank, slot) for rank, row in enumerate(slots) for slot in row if slot[1] == first]
    begin, end = min(slot[3] for _, slot in parts), max(slot[4] for _, slot in parts)
    scale = _WIDTH / max(end - begin, 1e-9)
    boxes = [
        f'<rect x="{_LEFT + (slot[3] - begin) * scale:.1f}" y="{_TOP + rank * _ROW + 3}" '
        f'width="{max((slot[4] - slot[3]) * scale - 0.6, 0.6):.1f}" height="{_ROW - 6}" '
        f'fill="{PALETTE[slot[0] == "backward"]}"><title>slot {slot[2]}, {slot[0]}, '
        f"{(slot[4] - slot[3]) * 1e3:.2f} ms</title></rect>"
        for rank, slot in parts
    ]
    names = [
        f'<text x="{_LEFT - 8}" y="{_TOP + rank * _ROW + 18}" text-anchor="end">rank {rank}</text>'
        for rank in range(len(slots))
    ]
    height = _TOP + len(slots) * _ROW + 24
    title = f"A relayed time stage: ranks compute {busy_share(slots) or 0.0:.0%} of the time"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
            f'font-family="sans-serif" font-size="12">',
            f'<rect width="{_LEFT + _WIDTH + 20}" height="{height}" fill="white"/>',
            f'<text x="{_LEFT}" y="18" font-size="14">{title}</text>',
            f'<text x="{_LEFT}" y="36" fill="{PALETTE[0]}">forward</text>',
            f'<text x="{_LEFT + 60}" y="36" fill="{PALETTE[1]}">backward</text>',
            *names,
            *boxes,
            f'<text x="{_LEFT}" y="{height - 6}">0</text>',
            f'<text x="{_LEFT + _WIDTH}" y="{height - 6}" text-anchor="end">{(end - begin) * 1e3:.1f} ms</text>',
            "</svg>",
        ]
    )


def _stages(slots: Slots) -> dict[tuple[str, int], list[Slot]]:
    """Parts of all ranks by phase and stage, of training alone."""
    found: dict[tuple[str, int], list[Slot]] = defaultdict(list)
    for slot in (slot for row in slots for slot in row if slot[0] in ("forward", "backward")):
        found[slot[0], slot[1]].append(slot)
    return found
