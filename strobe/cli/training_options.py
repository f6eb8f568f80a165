"""What is trained, how, and on which machine: groups of options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strobe.cli.run_options import (
    MACHINE_PANEL,
    TRAIN_PANEL,
    DeviceOption,
    model_hints,
    read_options,
    task_hints,
)
from strobe.errors import OptionError

if TYPE_CHECKING:
    from strobe.tasks import Task

USUAL_MODEL = "tgcn"


def _training(help: str, default: str, **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, rich_help_panel=TRAIN_PANEL, **more)


def _read_history(text: str) -> int | str:
    """A number of snapshots, or a word that ``Settings`` checks."""
    return int(text) if text.isdecimal() else text


@dataclass(frozen=True, kw_only=True)
class WhatOptions:
    """A model and a task, each with options of its own."""

    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A model that `strobe models` names.", show_default=USUAL_MODEL),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            "-t",
            help="A task that `strobe models` names. Without it, the one that fits the graph's labels.",
            show_default=False,
        ),
    ] = None
    hidden: Annotated[int | None, typer.Option(help="Width of the model's embeddings.", show_default="32")] = None
    model_option: Annotated[
        list[str] | None,
        typer.Option("--model-option", metavar="NAME=VALUE", help="An option of the model, such as layers=2."),
    ] = None
    task_option: Annotated[
        list[str] | None,
        typer.Option("--task-option", metavar="NAME=VALUE", help="An option of the task, such as ahead=2."),
    ] = None

    def chosen(self, earlier: Path | None = None) -> dict[str, Any]:
        """What training is told; what nobody said is left to the run that is resumed, if one is."""
        name = self.model or (None if earlier else USUAL_MODEL)
        return {"model": name, "model_options": self._model_options(name, earlier), "task": self._task(earlier)}

    def _model_options(self, name: str | None, earlier: Path | None) -> dict[str, Any] | None:
        pairs = self.model_option or []
        if not pairs and self.hidden is None:
            return None
        if name is None:
            name = _name_in(earlier, "model")
        options = read_options(pairs, model_hints(name), f"the model {name}")
        return options if self.hidden is None else {"hidden": self.hidden, **options}

    def _task(self, earlier: Path | None) -> str | Task | None:
        if not self.task_option:
            return self.task
        from strobe.tasks import make_task

        name = self.task
        if name is None:
            if earlier is None:
                raise OptionError("--task-option needs to know which task: give --task, too")
            name = _name_in(earlier, "task")
        return make_task(name, **read_options(self.task_option, task_hints(name), f"the task {name}"))


def _name_in(earlier: Path | None, what: str) -> str:
    """Which model or task an earlier run has. Read when it is needed: not every host has the run's directory."""
    from strobe.engine.record import read_config

    assert earlier is not None
    return str(read_config(earlier)[what]["name"])


@dataclass(frozen=True, kw_only=True)
class StoppingOptions:
    """How long training goes on, and what scales are fitted to."""

    epochs: Annotated[int | None, _training("Passes over the training snapshots.", "100")] = None
    evaluate_every: Annotated[int | None, _training("Epochs between evaluations.", "1", metavar="N")] = None
    eval_history: Annotated[
        str | None,
        _training(
            "Snapshots that scoring and prediction read up to the one predicted: as many as training does (auto), all, "
            "or N.",
            "auto",
            metavar="auto|all|N",
            parser=_read_history,
        ),
    ] = None
    patience: Annotated[
        int | None, _training("Stop after so many evaluations without a better one; 0 never does.", "20")
    ] = None
    fit: Annotated[
        int | None,
        _training(
            "Snapshots, the first ones, that scales of features and targets are fitted to, as in `strobe watch`.",
            "all that are learnt from",
            metavar="N",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How weights are found."""

    optimiser: Annotated[
        str | None, _training("Adam, or plain gradient descent (sgd).", "adam", metavar="adam|sgd")
    ] = None
    lr: Annotated[float | None, _training("Learning rate.", "0.01")] = None
    weight_decay: Annotated[float | None, _training("Pulls weights towards 0.", "0")] = None
    clip: Annotated[float | None, _training("Largest norm of a step's gradient.", "none")] = None
    window: Annotated[
        int | None,
        _training("Snapshots per step: fewer take less memory, and gradients reach less far back.", "all"),
    ] = None
    recompute: Annotated[
        int | None,
        _training(
            "Keep states of every Nth snapshot only and compute the rest again: less memory, one more forward pass, "
            "the same gradients.",
            "never",
            metavar="N",
        ),
    ] = None
    precision: Annotated[
        str | None,
        _training(
            "The numbers it computes with; tf32: float32, rounded in products on a GPU, which is faster; bf16: so, and "
            "rows of cells take half the memory.",
            "float32",
            metavar="float32|tf32|bf16|float64",
        ),
    ] = None
    seed: Annotated[int | None, _training("The same seed gives the same weights.", "0")] = None


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Where it is computed."""

    device: DeviceOption = None
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads, of each rank.", show_default="its share of the cores", rich_help_panel=MACHINE_PANEL
        ),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            help="Where snapshots are between steps: on the device, or in the host's memory, from where they come "
            "while others are computed. auto looks what fits.",
            metavar="auto|device|host",
            show_default="auto",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic",
            help="The same bits in every run on a GPU, too, or no result at all.",
            show_default=False,
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None
