"""Compared plans as a table that fits 80 columns, and a sentence that names the best."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from strobe.engine.compare import Compared, fastest
from strobe.engine.ledger_table import matters
from strobe.engine.summary import aligned, duration, figure
from strobe.numbers import file_size, percent, times

_NOISE = 1.1
_SAME = 1e-4


def compare_table(results: Sequence[Compared]) -> list[str]:
    """Time, evenness, memory and loss of every plan that ran, then its bytes by kind, then why others did not."""
    ran = [each for each in results if each.reason is None]
    lines = [*_costs(ran), ""] if ran else []
    if any(each.sent for each in ran):
        lines += [*_bytes(ran), ""]
    for each in results:
        if each.reason is not None:
            first, *rest = each.reason.splitlines()
            lines += [f"{each.name} did not run: {first}", *(f"  {line}" for line in rest), ""]
        if each.too_early:
            lines += [f"{each.name} only timed its batches, to put them in order then: give more --epochs", ""]
    return [*lines, *textwrap.wrap(_best(results), 80)]


def _costs(ran: Sequence[Compared]) -> list[str]:
    rows = [["plan", "epoch", "exposed", "time load", "work load", "memory", "loss", "difference"]]
    rows += [
        [
            each.name,
            duration(each.epoch_s or 0.0),
            "–" if each.exposed_share is None else percent(each.exposed_share),
            _factor(each.computing_load),
            _factor(each.work_load),
            file_size(each.memory_bytes or 0),
            figure(each.loss),
            _difference(each),
        ]
        for each in ran
    ]
    note = "loads: the fullest rank's for 1 of the emptiest's (computing; cells and arcs)"
    return [*aligned(rows, words=1, gap=2), note]


def _bytes(ran: Sequence[Compared]) -> list[str]:
    kinds = sorted({kind for each in ran for kind in matters(each.sent)}, key=lambda kind: (kind == "gradients", kind))
    rows = [["sent in an epoch", *kinds, "the rest", "all"]]
    for each in ran:
        shown = [each.sent.get(kind, 0) for kind in kinds]
        rest = each.sent_bytes - sum(shown)
        rows.append([each.name, *map(_size, (*shown, rest, each.sent_bytes))])
    return aligned(rows, words=1, gap=2)


def _best(results: Sequence[Compared]) -> str:
    order = fastest(results)
    if not order:
        return "no plan ran"
    best = order[0]
    assert best.epoch_s is not None
    said = f"{best.name} has the fastest epoch, {duration(best.epoch_s)}"
    if len(order) > 1 and order[1].epoch_s and best.epoch_s:
        factor = order[1].epoch_s / best.epoch_s
        said += f"; the next, {order[1].name}, takes {times(factor)} as long"
        said += "" if factor > _NOISE else ", which more --epochs might change"
    least = min(order, key=lambda each: each.sent_bytes)
    if least.sent_bytes < best.sent_bytes:
        said += f"; {least.name} sends the least, {file_size(least.sent_bytes)}"
    if any(_differs(each) for each in order):
        said += "; losses differ where a plan takes other steps or is approximate"
    return said


def _difference(each: Compared) -> str:
    if each.loss_difference is None:
        return "–"
    return "0" if not each.loss_difference else f"{each.loss_difference:+.2g}"


def _differs(each: Compared) -> bool:
    return abs(each.loss_difference or 0.0) > _SAME * abs(each.loss or 0.0)


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _size(num_bytes: float) -> str:
    return file_size(num_bytes) if num_bytes else "–"
