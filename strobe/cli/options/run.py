"""Options that several commands share, and the parsing of ``name=value`` texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.datasets.folder import DATA_DIR_VARIABLE
from strobe.options import describe_type

RUN_PANEL = "The run and its directory"
TRAIN_PANEL = "Training"
MACHINE_PANEL = "Machine"

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="The directory of a run, made by `strobe train`.", show_default=False)
]
GraphArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH", help="The directory of a saved graph, or the name of a data set.", show_default=False
    ),
]
WindowOption = Annotated[
    int | None, typer.Option("--window", help="Snapshots per step, as in training.", show_default="all")
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of random choices.", show_default="0")]
GraphOption = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="GRAPH",
        help="Another graph than the run's own: a directory, or the name of a data set.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto (a GPU if there is one), cpu, cuda, cuda:1, ….",
        show_default="auto",
        rich_help_panel=MACHINE_PANEL,
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar=DATA_DIR_VARIABLE,
        help="The directory of data sets, one folder each. Without it, the user's cache.",
        show_default=False,
    ),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON, and nothing else on stdout.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, curve or hints; only the result.", show_default=False)
]


def read_options(pairs: Sequence[str], hints: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Parse ``name=value`` texts, each value as the type of its option.

    Args:
        pairs: the texts.
        hints: the options of ``subject`` with their types.
        subject: what the options belong to, for error messages.

    Raises:
        OptionError: a text has no ``=``, or a value is not of its option's type.
        UnknownNameError: ``subject`` has no such option.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise OptionError(f"an option of {subject} is written name=value, not {pair!r}")
        if name not in hints:
            raise UnknownNameError(f"option of {subject}", name, hints)
        try:
            options[name] = _parse_value(text.strip(), hints[name])
        except ValueError:
            raise OptionError(f"{name} of {subject} must be {describe_type(hints[name])}, not {text!r}") from None
    return options


def _parse_value(text: str, hint: Any) -> Any:
    """Parse a text as a type; ValueError if it is no value of the type."""
    if hint is bool:
        return _parse_bool(text)
    if hint in (int, float):
        return hint(text.replace("_", ""))
    if hint is NoneType:
        return _parse_none(text)
    if get_origin(hint) is Literal:
        return get_args(hint)[[str(choice) for choice in get_args(hint)].index(text)]
    if get_origin(hint) in (list, tuple, Sequence):
        kind = get_args(hint)[0]
        return tuple(_parse_value(part.strip(), kind) for part in text.split(","))
    for part in get_args(hint):  # a union: the first that fits
        try:
            return _parse_value(text, part)
        except ValueError:
            continue
    if get_args(hint):
        raise ValueError
    return text


def _parse_bool(text: str) -> bool:
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise ValueError
    return values[text.lower()]


def _parse_none(text: str) -> None:
    if text.lower() not in ("none", "null", ""):
        raise ValueError
