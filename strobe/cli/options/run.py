"""Options that several commands share, and the parsing of ``name=value`` texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from strobe.cli.options.groups import option
from strobe.errors import OptionError, UnknownNameError
from strobe.graph.datasets.folder import DATA_DIR_VARIABLE
from strobe.options import describe_type

RUN_PANEL = "The run and its directory"
TRAIN_PANEL = "Training"
MACHINE_PANEL = "Machine"

_GRAPH = "The directory of a saved graph, or the name of a data set."
_DEVICE = "auto (a GPU if there is one), cpu, cuda, cuda:1, …."
_DATA_DIR = "The directory of data sets, one folder each. Without it, the user's cache."
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="The directory of a run, made by `strobe train`.", show_default=False)
]
GraphArgument = Annotated[str, typer.Argument(metavar="GRAPH", help=_GRAPH, show_default=False)]
GraphOrResumeArgument = Annotated[
    str | None, typer.Argument(metavar="GRAPH", help=f"{_GRAPH} With --resume, the run's own.", show_default=False)
]
GraphOption = Annotated[
    str | None, option("Another graph than the run's own: a directory, or the name of a data set.", metavar="GRAPH")
]
DeviceOption = Annotated[str | None, option(_DEVICE, default="auto", panel=MACHINE_PANEL)]
DataDirOption = Annotated[Path | None, option(_DATA_DIR, "--data-dir", metavar="DIR", envvar=DATA_DIR_VARIABLE)]
OverwriteOption = Annotated[bool, option("Replace an existing graph.", "--overwrite")]
AsJsonOption = Annotated[bool, option("Print one line of JSON, and nothing else on stdout.", "--json")]
QuietOption = Annotated[bool, option("No progress, curve or hints; only the result.", "--quiet", "-q", default=False)]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Settings of training that decide what a step computes."""

    window: Annotated[int | None, option("Snapshots per step, as in training.", default="all")] = None
    seed: Annotated[int | None, option("Seed of random choices.", default="0")] = None


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
        except (ValueError, KeyError):
            raise OptionError(f"{name} of {subject} must be {describe_type(hints[name])}, not {text!r}") from None
    return options


_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NONES = {"none": None, "null": None, "": None}


def _parse_value(text: str, hint: Any) -> Any:
    """Parse a text as a type; ValueError or KeyError if it is no value of the type."""
    if hint is bool:
        return _BOOLS[text.lower()]
    if hint is NoneType:
        return _NONES[text.lower()]
    if hint in (int, float):
        return hint(text.replace("_", ""))
    if get_origin(hint) is Literal:
        return {str(choice): choice for choice in get_args(hint)}[text]
    if get_origin(hint) in (list, tuple, Sequence):
        kind = get_args(hint)[0]
        return tuple(_parse_value(part.strip(), kind) for part in text.split(","))
    for part in get_args(hint):  # a union: the first that fits
        try:
            return _parse_value(text, part)
        except (ValueError, KeyError):
            continue
    if get_args(hint):
        raise ValueError
    return text
