"""Tables of names with their summaries and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from strobe.report.summary import format_option


def options_table(title: str, rows: Sequence[Mapping[str, Any]], heading: str = "summary and options") -> Table:
    """Build a table of rows with a name, a summary, and options with their defaults."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(f"[dim]{title}[/]", f"[dim]{heading}[/]")
    for row in rows:
        table.add_row(row["name"], format_options(row["summary"], row["options"]))
    return table


def format_options(summary: str, options: Mapping[str, Any]) -> str:
    """Format a summary and, below it, options, in rich's markup."""
    values = " ".join(f"{name}={format_option(value)}" for name, value in options.items())
    return f"{escape(summary)}\n[cyan]{escape(values)}[/]" if values else escape(summary)


def first_sentence(described: Any) -> str:
    """The first sentence of a docstring."""
    text = " ".join((inspect.getdoc(described) or "").split("\n\n", 1)[0].split())
    return re.split(r"(?<! al)\. ", text, maxsplit=1)[0].rstrip(".").replace("``", "`") + "."


def default_options(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a class or function that have defaults."""
    parameters = inspect.signature(function).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}
