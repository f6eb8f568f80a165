"""Options of runs: those of models and tasks are typed by what they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from strobe.errors import OptionError, UnknownNameError
from strobe.options import hints_of, in_words

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
SeedOption = Annotated[int | None, typer.Option("--seed", help="Of what is drawn at random.", show_default="0")]
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
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON, and nothing else on stdout.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, curve or hints; only the result.", show_default=False)
]


def read_options(pairs: Sequence[str], hints: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """``name=value`` texts as a dictionary, each value of the type its option has."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, given, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not given:
            raise OptionError(f"an option of {whose} is written name=value, not {pair!r}")
        if name not in hints:
            raise UnknownNameError(f"option of {whose}", name, hints)
        try:
            found[name] = _typed(text.strip(), hints[name])
        except ValueError:
            raise OptionError(f"{name} of {whose} must be {in_words(hints[name])}, not {text!r}") from None
    return found


def model_hints(name: str) -> dict[str, Any]:
    """The options of a model with their types."""
    from strobe.models import MODELS

    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return hints_of(MODELS[name], "inputs")


def task_hints(name: str) -> dict[str, Any]:
    """The options of a task with their types."""
    from strobe.tasks import TASKS

    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return hints_of(TASKS[name])


def _typed(text: str, hint: Any) -> Any:
    """A text as a value of a type; ValueError where it is none."""
    if hint is bool:
        return _truth(text)
    if hint in (int, float):
        return hint(text.replace("_", ""))
    if hint is NoneType:
        return _none(text)
    if get_origin(hint) is Literal:
        return get_args(hint)[[str(choice) for choice in get_args(hint)].index(text)]
    if get_origin(hint) in (list, tuple, Sequence):
        kind = get_args(hint)[0]
        return tuple(_typed(part.strip(), kind) for part in text.split(","))
    for part in get_args(hint):  # a union: the first that fits
        try:
            return _typed(text, part)
        except ValueError:
            continue
    if get_args(hint):
        raise ValueError
    return text


def _truth(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


def _none(text: str) -> None:
    if text.lower() not in ("none", "null", ""):
        raise ValueError
