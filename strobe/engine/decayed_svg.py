"""A picture of a window that decays: a bar per snapshot, and what it takes in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from strobe.engine.curve import STYLE
from strobe.engine.decayed import Amount, Decayed
from strobe.engine.summary import setting_in_words
from strobe.numbers import count, file_size, number_of, percent, short
from strobe.palette import PALETTE

_WIDTH, _LEFT, _RIGHT, _TOP, _COLUMN = 960, 24, 24, 112, 88
_NAMES, _SHARE, _FOOT = 96, 48, 26
_STYLE = """
.room { fill: var(--grid); opacity: 0.55; }
.rule { stroke: var(--soft); opacity: 0.5; }
.ink { fill: var(--ink); }
.small { font-size: 10px; }
"""


class _Column(NamedTuple):
    """Numbers below each other: two lines of a head, and how an amount is told in short and in full."""

    head: tuple[str, str]
    field: str
    is_bytes: bool = False

    def told(self, amount: Amount) -> str:
        number = getattr(amount, self.field)
        return file_size(number) if self.is_bytes else short(number)

    def in_full(self, amount: Amount) -> str:
        number = getattr(amount, self.field)
        return f"{' '.join(filter(None, self.head))}: {count(number)}{' bytes' if self.is_bytes else ''}"


_ALONE = (
    _Column(("", "cells"), "cells"),
    _Column(("", "arcs"), "arcs"),
    _Column(("bytes", "held"), "bytes_held", True),
)
_AMONG_RANKS = (_Column(("rows", "sent"), "rows_sent"), _Column(("bytes", "sent"), "bytes_sent", True))


def decayed_svg(found: Decayed | None) -> str | None:
    """The newest snapshot at the top, in light or dark as the reader has it; None where no window decays."""
    if found is None or not found.computed:
        return None
    columns = _ALONE if found.num_ranks == 1 else (*_ALONE[:2], *_AMONG_RANKS, *_ALONE[2:])
    row = max(13.0, min(28.0, 480 / len(found.times)))
    rows = len(found.times) * row
    height = round(_TOP + rows + 3 * _FOOT + 58 + 17 * (found.num_ranks > 1))
    title = f"A step computes {setting_in_words(found.to_json())}"
    body = "\n".join([*_head(found, columns), *_bars(found, columns, row), *_foot(found, columns, _TOP + rows)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}{_STYLE}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>\n'
        f'<text class="title" x="{_LEFT}" y="30">{escape(title)}</text>\n{body}\n</svg>\n'
    )


def _head(found: Decayed, columns: Sequence[_Column]) -> Iterator[str]:
    """What the colours stand for, which window it is, what the columns hold."""
    who = "" if found.num_ranks == 1 else f", {number_of(found.num_ranks, 'rank')} together"
    yield f'<text x="{_LEFT}" y="51">the last full window of the first epoch{who}</text>'
    for k, (name, look) in enumerate((("whole", _look(True)), ("decayed", _look(False)), ("left out", 'class="room"'))):
        x = _LEFT + _NAMES + k * 92
        yield f'<rect x="{x}" y="{_TOP - 33}" width="14" height="12" {look}/>'
        yield f'<text x="{x + 20}" y="{_TOP - 23}">{name}</text>'
    yield f'<text x="{_LEFT}" y="{_TOP - 23}">snapshot</text>'
    for x, column in _places(columns):
        for k, word in enumerate(column.head):
            yield f'<text x="{x}" y="{_TOP - 38 + 15 * k}" text-anchor="end">{word}</text>'
    yield f'<path class="rule" d="M{_LEFT} {_TOP - 10}H{_WIDTH - _RIGHT}"/>'


def _bars(found: Decayed, columns: Sequence[_Column], row: float) -> Iterator[str]:
    """A row per snapshot, the newest first."""
    small = " small" if row < 16 else ""
    wide, left, gap = _bar_width(columns), _LEFT + _NAMES, 3 if row >= 16 else 1
    newest_first = list(zip(found.times, found.computed, found.whole, strict=True))[::-1]
    for age, (time, computed, whole) in enumerate(newest_first):
        y = _TOP + age * row
        share = computed.cells / whole.cells if whole.cells else 0.0
        middle, size = y + row / 2 + 4, f'y="{y + gap:.1f}" height="{row - 2 * gap:.1f}"'
        told = "; ".join(column.in_full(computed) for column in columns)
        yield f"<g><title>{escape(f'snapshot {time}, {percent(share)} of its cells. {told}')}</title>"
        yield f'<text class="ink{small}" x="{_LEFT}" y="{middle:.1f}">{escape(_cut(time))}</text>'
        yield f'<rect class="room" x="{left}" {size} width="{wide}"/>'
        yield f'<rect x="{left}" {size} width="{share * wide:.1f}" {_look(age < found.decay.full)}/>'
        yield _number(percent(share), left + wide + _SHARE - 4, middle, f"ink{small}")
        yield from _numbers(computed, columns, middle, f"ink{small}")
        yield "</g>"


def _foot(found: Decayed, columns: Sequence[_Column], top: float) -> Iterator[str]:
    """The sums, beside those of a window that keeps everything; what a cell holds."""
    computed, whole = Amount.of(found.computed), Amount.of(found.whole)
    yield f'<path class="rule" d="M{_LEFT} {top + 6:.1f}H{_WIDTH - _RIGHT}"/>'
    for k, (name, amount) in enumerate((("a step", computed), ("a window that keeps everything", whole))):
        y = top + 4 + (k + 1) * _FOOT
        yield f'<text class="{"head" if not k else "ink"}" x="{_LEFT}" y="{y:.1f}">{name}</text>'
        yield from _numbers(amount, columns, y, "head" if not k else "ink")
    y = top + 4 + 3 * _FOOT
    yield f'<text x="{_LEFT}" y="{y:.1f}">the step has of it</text>'
    for x, column in _places(columns):
        part, all_of_it = getattr(computed, column.field), getattr(whole, column.field)
        yield _number(percent(part / all_of_it) if all_of_it else "–", x, y, "soft")
    for k, text in enumerate(_explained(found)):
        yield f'<text x="{_LEFT}" y="{y + 34 + 17 * k:.1f}">{escape(text)}</text>'


def _explained(found: Decayed) -> Iterator[str]:
    width = found.width
    held = f"{number_of(width.features, 'feature')}, {width.state} of state and {width.embedding} of embedding"
    yield f"a cell holds {held}, {width.item_bytes} bytes each; arcs are those between cells that are computed"
    products = sum(map(len, width.sent.values()))
    if found.num_ranks > 1 and not products:
        yield "nothing is sent: the model reads only inputs of others, which every rank finds in the graph"
    elif found.num_ranks > 1:
        yield (
            "a row is sent once to each rank that reads it, and its gradient comes back, "
            f"in {number_of(products, 'sparse product')}"
        )


def _numbers(amount: Amount, columns: Sequence[_Column], y: float, look: str) -> Iterator[str]:
    for x, column in _places(columns):
        yield _number(column.told(amount), x, y, look)


def _number(text: str, x: float, y: float, look: str) -> str:
    return f'<text class="{look}" x="{x}" y="{y:.1f}" text-anchor="end">{text}</text>'


def _places(columns: Sequence[_Column]) -> Iterator[tuple[int, _Column]]:
    """Where each column ends."""
    first = _WIDTH - _RIGHT - (len(columns) - 1) * _COLUMN
    return ((first + k * _COLUMN, column) for k, column in enumerate(columns))


def _bar_width(columns: Sequence[_Column]) -> int:
    return _WIDTH - _LEFT - _RIGHT - _NAMES - _SHARE - len(columns) * _COLUMN


def _look(whole: bool) -> str:
    return f'fill="{PALETTE[0]}"' if whole else f'fill="{PALETTE[2]}"'


def _cut(text: str, most: int = 14) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
