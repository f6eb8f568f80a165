"""Plans as the command line writes them: ``relay``, ``relay:groups=4``, or a file with one.

A choice may wrap another: ``stale:share=0.3,fresh=halo``, ``stale:fresh=relay:groups=4``. Where the one inside has
several options of its own, brackets keep them together: ``fresh=[NAME:option=value,option=value]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strobe.cli.run_options import read_options
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.options import hints_of

if TYPE_CHECKING:
    from strobe.plan import Plan

RANKS_PANEL = "Ranks"
QUESTIONS = {
    "store": "how snapshots are kept",
    "placement": "who owns which cell",
    "batching": "which cells a step trains",
    "structure": "how rows of neighbours arrive that others own",
    "time": "how sequences go on that change ranks",
    "schedule": "in which order batches run",
    "sync": "how ranks agree on weights",
}
"""What each axis answers."""

PlanOption = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="NAME|FILE",
        help="How ranks share the work: a name of `strobe plans`, or a JSON file with a plan.",
        show_default="relay",
        rich_help_panel=RANKS_PANEL,
    ),
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="SECONDS",
        help="A rank that waits for a message for so long ends the run; not while rank 0 works alone.",
        show_default="120",
        rich_help_panel=RANKS_PANEL,
    ),
]


def _choice(axis: str, example: str) -> Any:
    help = f"{QUESTIONS[axis].capitalize()}, such as {example}."
    return typer.Option(metavar="CHOICE", help=help, show_default=False, rich_help_panel=RANKS_PANEL)


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """How many ranks train, and how they share the work."""

    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes on this machine that train together. Under torchrun the ranks are torchrun's.",
            show_default="1",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None
    plan: PlanOption = None
    store: Annotated[str | None, _choice("store", "delta:window=4")] = None
    placement: Annotated[str | None, _choice("placement", "metis")] = None
    batching: Annotated[str | None, _choice("batching", "windows:size=8")] = None
    structure: Annotated[str | None, _choice("structure", "halo")] = None
    time: Annotated[str | None, _choice("time", "relay:groups=32")] = None
    schedule: Annotated[str | None, _choice("schedule", "in-order")] = None
    sync: Annotated[str | None, _choice("sync", "average:every=4")] = None
    deadline: DeadlineOption = None
    max_restarts: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How often a run whose rank failed goes on from its last checkpoint by itself.",
            show_default="0",
            rich_help_panel=RANKS_PANEL,
        ),
    ] = None

    def chosen(self, earlier: Path | None = None) -> dict[str, Any]:
        """What training is told; what nobody said is as in the run that is resumed, if one is."""
        found = {
            "plan": self._plan(earlier),
            "ranks": self._ranks(earlier),
            "deadline_s": self.deadline,
            "max_restarts": self.max_restarts,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _ranks(self, earlier: Path | None) -> int | None:
        from strobe.comm.launch import in_ranks
        from strobe.engine.record import read_config

        if not in_ranks():
            return self.ranks if self.ranks is not None or earlier is None else int(read_config(earlier)["ranks"])
        if self.ranks not in (None, num_ranks()):
            raise OptionError(f"this is one of {num_ranks()} ranks that torchrun has started: leave --ranks out")
        if self.max_restarts is not None:
            raise OptionError(
                "torchrun starts failed ranks again, as often as its own --max-restarts says: leave ours out"
            )
        return None

    def _plan(self, earlier: Path | None) -> Plan | None:
        axes = ("store", "placement", "batching", "structure", "time", "schedule", "sync")
        varied = {axis: text for axis in axes if (text := getattr(self, axis)) is not None}
        if self.plan is None and not varied:
            return None
        return vary(_usual_plan(earlier) if self.plan is None else read_plan(self.plan), varied)

    def refuse_two_windows(self, window: int | None) -> None:
        """Raises where --batching and --window both say how snapshots are cut."""
        if window is not None and self.batching is not None and ":" in self.batching:
            raise OptionError(f"--batching {self.batching} and --window {window} both cut snapshots: leave one out")


def _usual_plan(earlier: Path | None) -> Plan:
    """Where choices start from if nobody names a plan."""
    from strobe.engine.record import read_config
    from strobe.plan import Plan

    return Plan() if earlier is None else Plan.from_json(read_config(earlier)["plan"])


def num_ranks(wanted: int | None = None) -> int:
    """How many ranks there will be: those that torchrun has started, else those that were asked for."""
    from strobe.comm.launch import rank_from_environment

    seat = rank_from_environment()
    return (wanted or 1) if seat is None else seat.num_ranks


def read_plan(text: str) -> Plan:
    """The plan of a preset, with its options if any, or of a file."""
    if Path(text).suffix == ".json":
        return _plan_of_file(Path(text))
    from strobe.presets import PRESETS, preset

    name, options = _parted(text)
    if name not in PRESETS:
        raise UnknownNameError("plan", name, PRESETS)
    return preset(name, **read_options(options, hints_of(PRESETS[name]), f"the plan {name}"))


def vary(plan: Plan, choices: Mapping[str, str]) -> Plan:
    """The same plan with other choices on some axes."""
    for axis, text in choices.items():
        choice = _read_choice(axis, text)
        if axis in ("structure", "time"):
            plan = replace(plan, exchange=replace(plan.exchange, **{axis: choice}))
        else:
            plan = replace(plan, **{axis: choice})
    return plan


def split_plans(text: str) -> list[str]:
    """Plans with commas between them; an option (``relay:size=8,groups=4``) belongs to the plan before it, and so does
    one more number of an option (``dynahb:vertices=0.02,0.05``)."""
    found: list[str] = []
    for part in text.split(","):
        if found and (("=" in part and ":" not in part) or part.strip()[:1].isdigit()):
            found[-1] += f",{part}"
        else:
            found.append(part.strip())
    return [part for part in found if part]


def _read_choice(axis: str, text: str) -> Any:
    from strobe.registry import AXES, is_choice, make

    name, options = _parted(text)
    if name not in AXES[axis]:
        return make(axis, name)  # it knows how to refuse
    hints = hints_of(AXES[axis][name])
    found = read_options(options, hints, f"{axis} {name}")
    for option in (option for option in found if is_choice(hints[option])):
        found[option] = _read_choice(axis, re.sub(r"^\[(.*)\]$", r"\1", found[option]))
    return make(axis, {"name": name, **found})


def _parted(text: str) -> tuple[str, list[str]]:
    """The name and the ``option=value`` texts of ``name:option=value,option=value``; commas in brackets stay, and those
    before one more value of an option."""
    name, _, options = text.partition(":")
    found, depth = [""], 0
    for letter in options:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    options_of: list[str] = []
    for part in filter(str.strip, found):
        if options_of and "=" not in part:
            options_of[-1] += f",{part}"
        else:
            options_of.append(part)
    return name.strip(), options_of


def _plan_of_file(path: Path) -> Plan:
    from strobe.io.sealed import read_json
    from strobe.plan import Plan

    try:
        return Plan.from_json(read_json(path))
    except FileNotFoundError:
        raise OptionError(f"there is no file {path}: write one with strobe plans NAME --json > {path}") from None
    except StrobeError as error:
        raise OptionError(f"{path} does not hold a plan: {error}") from error
