"""Chart of a decaying window: a bar and the costs of each snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from strobe.engine.sources.decay import StepCost, WindowCost
from strobe.format import file_size, format_count, format_short, percent, pluralize
from strobe.report.charts.svg import PALETTE, document, path, rect, text, truncate
from strobe.report.summary import describe_decay

_WIDTH, _LEFT, _RIGHT, _TOP, _COLUMN = 960, 24, 24, 112, 88
_NAMES, _SHARE, _FOOT = 96, 48, 26
_FULL_COLOR, _DECAYED_COLOR = PALETTE[0], PALETTE[2]
_STYLE = """
.room { fill: var(--grid); opacity: 0.55; }
.rule { stroke: var(--soft); opacity: 0.5; }
"""


class _Column(NamedTuple):
    """A column of numbers: two lines of heading and a field of ``StepCost``."""

    head: tuple[str, str]
    field: str
    is_bytes: bool = False

    def format(self, cost: StepCost) -> str:
        number = getattr(cost, self.field)
        return file_size(number) if self.is_bytes else format_short(number)

    def format_exact(self, cost: StepCost) -> str:
        number = getattr(cost, self.field)
        return f"{' '.join(filter(None, self.head))}: {format_count(number)}{' bytes' if self.is_bytes else ''}"


_CELLS, _ARCS = _Column(("", "cells"), "cells"), _Column(("", "arcs"), "arcs")
_RESIDENT = _Column(("bytes", "held"), "bytes_resident", True)
_SENT = (_Column(("rows", "sent"), "rows_sent"), _Column(("bytes", "sent"), "bytes_sent", True))


def window_cost_svg(cost: WindowCost | None) -> str | None:
    """Draw the costs of a window, the newest snapshot on top; None if no window decays."""
    if cost is None or not cost.computed:
        return None
    columns = (_CELLS, _ARCS, *(_SENT if cost.num_ranks > 1 else ()), _RESIDENT)
    row = max(13.0, min(28.0, 480 / len(cost.times)))
    rows = len(cost.times) * row
    height = round(_TOP + rows + 3 * _FOOT + 58 + 17 * (cost.num_ranks > 1))
    title = f"A step computes {describe_decay(cost.to_json())}"
    body = [*_head(cost, columns), *_bars(cost, columns, row), *_foot(cost, columns, _TOP + rows)]
    return document(title, body, width=_WIDTH, height=height, left=_LEFT, style=_STYLE)


def _head(cost: WindowCost, columns: Sequence[_Column]) -> Iterator[str]:
    """Draw the subtitle, the legend and the column headings."""
    ranks = "" if cost.num_ranks == 1 else f", {pluralize(cost.num_ranks, 'rank')} together"
    yield text(_LEFT, 51, f"the last full window of the first epoch{ranks}")
    for k, (name, fill) in enumerate((("whole", _FULL_COLOR), ("decayed", _DECAYED_COLOR), ("left out", ""))):
        x = _LEFT + _NAMES + k * 92
        yield rect(x, _TOP - 33, 14, 12, fill=fill, css="" if fill else "room")
        yield text(x + 20, _TOP - 23, name)
    yield text(_LEFT, _TOP - 23, "snapshot")
    for x, column in _column_positions(columns):
        for k, word in enumerate(column.head):
            yield text(x, _TOP - 38 + 15 * k, word, anchor="end")
    yield path(f"M{_LEFT} {_TOP - 10}H{_WIDTH - _RIGHT}", css="rule")


def _bars(cost: WindowCost, columns: Sequence[_Column], row: float) -> Iterator[str]:
    """Draw a row per snapshot, the newest first."""
    css, gap = ("ink", 3) if row >= 16 else ("ink small", 1)
    left, width = _LEFT + _NAMES, _WIDTH - _LEFT - _RIGHT - _NAMES - _SHARE - len(columns) * _COLUMN
    newest_first = list(zip(cost.times, cost.computed, cost.without_decay, strict=True))[::-1]
    for age, (time, computed, whole) in enumerate(newest_first):
        y = _TOP + age * row
        share = computed.cells / whole.cells if whole.cells else 0.0
        middle, color = y + row / 2 + 4, _FULL_COLOR if age < cost.decay.full else _DECAYED_COLOR
        costs = "; ".join(column.format_exact(computed) for column in columns)
        title = f"snapshot {time}, {percent(share)} of its cells. {costs}"
        yield f"<g><title>{escape(title)}</title>"
        yield text(_LEFT, middle, truncate(time, 14), css=css)
        yield rect(left, y + gap, width, row - 2 * gap, css="room")
        yield rect(left, y + gap, share * width, row - 2 * gap, fill=color)
        yield text(left + width + _SHARE - 4, middle, percent(share), anchor="end", css=css)
        yield from _numbers(computed, columns, middle, css)
        yield "</g>"


def _foot(cost: WindowCost, columns: Sequence[_Column], top: float) -> Iterator[str]:
    """Draw the sums, those of a window without decay, and footnotes."""
    computed, whole = cost.total, cost.total_without_decay
    yield path(f"M{_LEFT} {top + 6:.1f}H{_WIDTH - _RIGHT}", css="rule")
    for k, (name, amount, css) in enumerate((("a step", computed, "head"), ("without decay", whole, "ink"))):
        y = top + 4 + (k + 1) * _FOOT
        yield text(_LEFT, y, name, css=css)
        yield from _numbers(amount, columns, y, css)
    y = top + 4 + 3 * _FOOT
    yield text(_LEFT, y, "share")
    for x, column in _column_positions(columns):
        part, total = getattr(computed, column.field), getattr(whole, column.field)
        yield text(x, y, percent(part / total) if total else "–", anchor="end")
    for k, note in enumerate(_footnotes(cost)):
        yield text(_LEFT, y + 34 + 17 * k, note)


def _footnotes(cost: WindowCost) -> Iterator[str]:
    width = cost.width
    numbers = f"{pluralize(width.features, 'feature')}, {width.state} of state and {width.embedding} of embedding"
    yield f"a cell holds {numbers}, {width.item_bytes} bytes each; arcs are those between computed cells"
    products = sum(map(len, width.sent_columns.values()))
    if cost.num_ranks > 1 and not products:
        yield "nothing is sent: the model reads only inputs of neighbors, which every rank has"
    elif cost.num_ranks > 1:
        yield (
            "each rank that reads a row receives it once and sends back its gradient, "
            f"in {pluralize(products, 'sparse product')}"
        )


def _numbers(cost: StepCost, columns: Sequence[_Column], y: float, css: str) -> Iterator[str]:
    for x, column in _column_positions(columns):
        yield text(x, y, column.format(cost), anchor="end", css=css)


def _column_positions(columns: Sequence[_Column]) -> Iterator[tuple[int, _Column]]:
    """Yield the right edge of each column."""
    first = _WIDTH - _RIGHT - (len(columns) - 1) * _COLUMN
    return ((first + k * _COLUMN, column) for k, column in enumerate(columns))
