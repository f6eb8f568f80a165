"""Plans on the command line: ``relay``, ``relay:pipeline_groups=4``, or a JSON file.

A choice may wrap another: ``stale:threshold=0.3,inner=halo``. Brackets enclose an inner choice with several options:
``inner=[NAME:option=value,option=value]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from strobe.cli.options.groups import explicit_options, option
from strobe.cli.options.run import read_options
from strobe.comm.launch.environment import is_launched_rank, rank_from_environment
from strobe.engine.records.run_directory import read_config
from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.io.checksum import read_json
from strobe.options import option_types
from strobe.plan import Plan
from strobe.presets import PRESETS, preset
from strobe.registry import AXES, is_strategy_type, make_strategy

RANKS_PANEL = "Ranks"
AXIS_DESCRIPTIONS = {
    "store": "how snapshots are stored",
    "placement": "which rank owns which cell",
    "batching": "which cells a step trains on",
    "structure": "how rows of remote neighbors arrive",
    "time": "how states of sequences cross ranks",
    "schedule": "the order in which batches run",
    "sync": "how ranks synchronize weights",
}

_ranks_option = partial(option, panel=RANKS_PANEL)
_PLANS = "Names of `strobe plans`, with options if any (relay:pipeline_groups=4), or JSON files."
_DEADLINE = "End the run if a rank waits for a message for longer; not while rank 0 works alone."
_RANKS = "Processes on this machine that train together. Under torchrun the ranks are torchrun's."
_PLAN = "How ranks divide the work: a name of `strobe plans`, or a JSON file with a plan."
_BACKEND = "What carries GPU tensors: NCCL, or gloo through host memory. auto: NCCL, unless ranks share a GPU."
_RESTARTS = "How often a run with a failed rank restarts from its last checkpoint."
PlansOption = Annotated[str, _ranks_option(_PLANS, metavar="PLAN,PLAN,…")]
DeadlineOption = Annotated[float | None, _ranks_option(_DEADLINE, metavar="SECONDS", default="120")]
BackendOption = Annotated[str | None, _ranks_option(_BACKEND, metavar="auto|nccl|gloo", default="auto")]


def axis_option(axis: str, example: str) -> Any:
    """An option that overrides the choice of a plan on an axis."""
    return _ranks_option(f"{AXIS_DESCRIPTIONS[axis].capitalize()}, such as {example}.", metavar="CHOICE", default=False)


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """The number of ranks, and the plan that divides the work among them."""

    ranks: Annotated[int | None, _ranks_option(_RANKS, metavar="N", default="1")] = None
    plan: Annotated[str | None, _ranks_option(_PLAN, metavar="NAME|FILE", default="relay")] = None
    store: Annotated[str | None, axis_option("store", "delta:window=4")] = None
    placement: Annotated[str | None, axis_option("placement", "metis")] = None
    batching: Annotated[str | None, axis_option("batching", "windows:size=8")] = None
    structure: Annotated[str | None, axis_option("structure", "halo")] = None
    time: Annotated[str | None, axis_option("time", "relay:pipeline_groups=32")] = None
    schedule: Annotated[str | None, axis_option("schedule", "in-order")] = None
    sync: Annotated[str | None, axis_option("sync", "average:every=4")] = None
    deadline: DeadlineOption = None
    backend: BackendOption = None
    max_restarts: Annotated[int | None, _ranks_option(_RESTARTS, metavar="N", default="0")] = None

    def to_arguments(self, earlier: Path | None = None) -> dict[str, Any]:
        """The arguments of training; options not given are those of ``earlier``, a resumed run."""

        def base() -> Plan:
            return Plan() if earlier is None else Plan.from_json(read_config(earlier)["plan"])

        return explicit_options(
            plan=choose_plan(self, base),
            ranks=self._ranks(earlier),
            deadline_s=self.deadline,
            backend=self.backend,
            max_restarts=self.max_restarts,
        )

    def _ranks(self, earlier: Path | None) -> int | None:
        if not is_launched_rank():
            return self.ranks if self.ranks is not None or earlier is None else int(read_config(earlier)["ranks"])
        if self.ranks not in (None, num_ranks()):
            raise OptionError(f"this is one of {num_ranks()} ranks that torchrun has started: leave --ranks out")
        if self.max_restarts is not None:
            raise OptionError("torchrun restarts failed ranks (its own --max-restarts): leave ours out")
        return None

    def check_single_window(self, window: int | None) -> None:
        """Raise OptionError where --batching and --window both cut time into windows."""
        if window is not None and self.batching is not None and ":" in self.batching:
            raise OptionError(f"--batching {self.batching} and --window {window} both cut snapshots: leave one out")


def num_ranks(requested: int | None = None) -> int:
    """The number of ranks: torchrun's, else ``requested``, else 1."""
    environment = rank_from_environment()
    return (requested or 1) if environment is None else environment.num_ranks


def choose_plan(options: Any, base: Callable[[], Plan]) -> Plan | None:
    """The plan of an option group with ``plan`` and axes: ``--plan``, else ``base``, with overrides; None without any.

    Args:
        options: the group.
        base: makes the plan that overrides apply to where no plan was given.
    """
    choices = {axis: text for axis in AXES if (text := getattr(options, axis, None)) is not None}
    if options.plan is None and not choices:
        return None
    return override_choices(base() if options.plan is None else read_plan(options.plan), choices)


def read_plan(text: str) -> Plan:
    """Parse a preset with its options, or read a plan from a JSON file.

    Raises:
        UnknownNameError: there is no such preset, or it has no such option.
        OptionError: a value is not of its option's type, or the file holds no plan.
    """
    if Path(text).suffix == ".json":
        return _read_plan_file(Path(text))
    name, options = _parse_choice(text)
    if name not in PRESETS:
        raise UnknownNameError("plan", name, PRESETS)
    return preset(name, **read_options(options, option_types(PRESETS[name]), f"the plan {name}"))


def override_choices(plan: Plan, choices: Mapping[str, str]) -> Plan:
    """Replace the choices of a plan on some axes, each written ``name:option=value,…``."""
    for axis, text in choices.items():
        choice = _read_choice(axis, text)
        if axis in ("structure", "time"):
            plan = replace(plan, exchange=replace(plan.exchange, **{axis: choice}))
        else:
            plan = replace(plan, **{axis: choice})
    return plan


def split_plans(text: str) -> list[str]:
    """Split a list of plans at its commas.

    An option (``psg:size=8,stride=4``) and one more number of an option (``hybrid:vertices=0.02,0.05``) belong to the
    plan before them.
    """
    plans: list[str] = []
    for part in text.split(","):
        if plans and (("=" in part and ":" not in part) or part.strip()[:1].isdigit()):
            plans[-1] += f",{part}"
        else:
            plans.append(part.strip())
    return [plan for plan in plans if plan]


def read_plans(text: str) -> dict[str, Plan]:
    """Parse a list of plans, by name; the second plan of a name is called ``name (2)``.

    Raises:
        OptionError: the list is empty.
    """
    plans: dict[str, Plan] = {}
    for name in split_plans(text):
        repeats = sum(known.partition(" ")[0] == name for known in plans)
        plans[f"{name} ({repeats + 1})" if repeats else name] = read_plan(name)
    if not plans:
        raise OptionError("give at least one plan, such as pts,relay")
    return plans


def _read_choice(axis: str, text: str) -> Any:
    name, pairs = _parse_choice(text)
    if name not in AXES[axis]:
        return make_strategy(axis, name)  # raises
    hints = option_types(AXES[axis][name])
    options = read_options(pairs, hints, f"{axis} {name}")
    for inner in [each for each in options if is_strategy_type(hints[each])]:
        options[inner] = _read_choice(axis, re.sub(r"^\[(.*)\]$", r"\1", options[inner]))
    return make_strategy(axis, {"name": name, **options})


def _parse_choice(text: str) -> tuple[str, list[str]]:
    """Split ``name:option=value,option=value`` into the name and its ``option=value`` texts.

    Commas within brackets and between the values of one option do not split.
    """
    name, _, options = text.partition(":")
    parts, depth = [""], 0
    for letter in options:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    pairs: list[str] = []
    for part in filter(str.strip, parts):
        if pairs and "=" not in part:
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return name.strip(), pairs


def _read_plan_file(path: Path) -> Plan:
    try:
        return Plan.from_json(read_json(path))
    except FileNotFoundError:
        raise OptionError(f"there is no file {path}: write one with strobe plans NAME --json > {path}") from None
    except StrobeError as error:
        raise OptionError(f"{path} does not hold a plan: {error}") from error
