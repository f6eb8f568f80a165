"""What can be chosen, as a table: names, what they are, and their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


def listing(what: str, rows: Sequence[Mapping[str, Any]], told: str = "what it is, and its options") -> Table:
    """A row per name; rows have a name, a summary, and options with their defaults."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row(f"[dim]{what}[/]", f"[dim]{told}[/]")
    for row in rows:
        table.add_row(row["name"], with_options(row["summary"], row["options"]))
    return table


def with_options(summary: str, options: Mapping[str, Any]) -> str:
    """A summary, and below it the options, in rich's markup."""
    from strobe.engine.summary import word

    told = " ".join(f"{name}={word(value)}" for name, value in options.items())
    return f"{escape(summary)}\n[cyan]{escape(told)}[/]" if told else escape(summary)


def first_sentence(described: Any) -> str:
    """What something is, from its docstring: up to the first full stop."""
    text = " ".join((inspect.getdoc(described) or "").split("\n\n", 1)[0].split())
    return re.split(r"(?<! al)\. ", text, maxsplit=1)[0].rstrip(".").replace("``", "`") + "."


def defaults_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """The options of a class or function that have defaults."""
    parameters = inspect.signature(maker).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}
