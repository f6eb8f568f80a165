"""Frame of all HTML pages: style, key numbers, plots with captions, and writing the file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from strobe.errors import MissingPackageError, OptionError
from strobe.io.atomic import write_atomic
from strobe.report.charts.svg import PALETTE

_DOCTYPE = "<!doctype html>"


@dataclass(frozen=True, kw_only=True)
class StatTile:
    """A key number with a label and a note."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plotly figure with heading and caption."""

    heading: str
    figure: Any
    caption: str
    alt: str


def page(title: str, subtitle: str, tiles: Iterable[StatTile], plots: Sequence[Plot]) -> str:
    """Return an HTML page that loads nothing from outside: it contains plotly.js (about 5 MB). Escapes all texts."""
    shown = [_figure(plot, number) for number, plot in enumerate(plots)]
    numbers = "".join(_tile(tile) for tile in tiles)
    return f"""{_DOCTYPE}
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>
<main>
<dl class="tiles">{numbers}</dl>
<noscript><p>The plots need JavaScript; their captions say what they show.</p></noscript>
<div class="plots">{"".join(shown)}</div>
</main>
</body>
</html>
"""


def new_figure(*, y_title: str, x_title: str = "") -> Any:
    """Return an empty plotly figure in the page's style; its background is transparent for dark mode."""
    try:
        from plotly.graph_objects import Figure
    except ImportError as error:
        raise MissingPackageError("plotly", "an HTML page") from error
    figure = Figure()
    axis = {"gridcolor": "rgba(128,128,128,0.2)", "zerolinecolor": "rgba(128,128,128,0.4)", "automargin": True}
    axis |= {"separatethousands": True, "exponentformat": "none"}
    x_label, y_label = ({"text": title, "font": {"size": 13}, "standoff": 8} for title in (x_title, y_title))
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=PALETTE,
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#777"},
        margin={"l": 10, "r": 10, "t": 36, "b": 10},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hovermode="x unified",
        xaxis={"title": x_label if x_title else None, **axis, "showgrid": False},
        yaxis={"title": y_label, **axis, "rangemode": "tozero"},
    )
    return figure


def check_target(path: Path) -> None:
    """Check that a page can be written to ``path``; an existing page may be replaced.

    Raises:
        OptionError: ``path`` is a directory, not writable, or an existing file that is no HTML page.
    """
    if path.is_dir():
        raise OptionError(f"{path} is a directory: give a file name for the page, such as {path / 'page.html'}")
    if not path.parent.is_dir():
        raise OptionError(f"there is no directory {path.parent} to write {path.name} into")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OptionError(f"you may not write into {path.parent}: choose another place for the page")
    if path.exists() and not _is_page(path):
        raise OptionError(f"{path} exists and is not an HTML page: it is left alone. Choose another name.")


def write_page(path: Path, text: str) -> None:
    """Write a page atomically."""
    check_target(path)
    write_atomic(path, lambda file: file.write(text.encode()))


def _is_page(path: Path) -> bool:
    if not path.is_file():  # a device or a pipe
        return False
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return False
    return not start or start.startswith((b"<!doctype html", b"<html"))


def _tile(tile: StatTile) -> str:
    note = f"<dd class='note'>{escape(tile.note)}</dd>" if tile.note else ""
    return f"<div><dt>{escape(tile.label)}</dt><dd>{escape(tile.value)}</dd>{note}</div>"


def _figure(plot: Plot, number: int) -> str:
    content = plot.figure.to_html(
        full_html=False,
        include_plotlyjs=number == 0,
        default_width="100%",
        default_height="320px",
        div_id=f"plot-{number}",
        config={"responsive": True, "displaylogo": False, "displayModeBar": False},
    )
    return (
        f"<figure aria-labelledby='heading-{number}' aria-describedby='caption-{number}'>"
        f"<h2 id='heading-{number}'>{escape(plot.heading)}</h2>"
        f"<div role='img' aria-label='{escape(plot.alt)}'>{content}</div>"
        f"<figcaption id='caption-{number}'>{escape(plot.caption)}</figcaption></figure>"
    )


_STYLE = """
:root { --ground: #f6f7f9; --card: #fff; --ink: #1d2733; --soft: #5c6875; --line: #e2e6ea; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181d; --card: #1c2229; --ink: #e4e8ec; --soft: #9aa6b2; --line: #2c343d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1280px; padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
header p { margin: .25rem 0 1.25rem; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tiles > div, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tiles > div { padding: .7rem .9rem; }
dt { color: var(--soft); font-size: .82rem; }
dd { margin: 0; font-size: 1.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dd.note { font-size: .82rem; font-weight: 400; color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: .75rem; }
figure { margin: 0; padding: 1rem; min-width: 0; }
figure:first-child:nth-last-child(odd) { grid-column: 1 / -1; }
h2 { margin: 0 0 .25rem; font-size: 1.05rem; }
figcaption { margin-top: .5rem; color: var(--ink); font-size: .95rem; }
.xtick text, .ytick text, .xtitle, .ytitle, .y2title, .y2tick text, .legendtext { fill: var(--soft) !important; }
.hoverlayer .legend .bg { fill: var(--card) !important; }
.hoverlayer .legend text { fill: var(--ink) !important; }
@media print { body { background: none; } figure { break-inside: avoid; } }
"""
