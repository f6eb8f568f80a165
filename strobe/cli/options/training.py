"""Option groups of training: model and task, optimization, machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from strobe.cli.options.run import MACHINE_PANEL, TRAIN_PANEL, DeviceOption, read_options
from strobe.engine.records.run_directory import read_config
from strobe.errors import OptionError, UnknownNameError
from strobe.models import MODELS
from strobe.options import option_types
from strobe.tasks import TASKS, Task, make_task

DEFAULT_MODEL = "tgcn"


def _training_option(help: str, default: str, **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, rich_help_panel=TRAIN_PANEL, **more)


def _read_history(text: str) -> int | str:
    """Parse a number of snapshots, or a word that ``Settings`` checks."""
    return int(text) if text.isdecimal() else text


@dataclass(frozen=True, kw_only=True)
class ModelAndTaskOptions:
    """A model and a task with their own options."""

    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A model that `strobe models` lists.", show_default=DEFAULT_MODEL),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            "-t",
            help="A task that `strobe models` lists. Without it, the one that fits the graph's labels.",
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

    def to_arguments(self, earlier: Path | None = None) -> dict[str, Any]:
        """The model and task arguments of training; options not given are those of ``earlier``, a resumed run."""
        name = self.model or (None if earlier else DEFAULT_MODEL)
        return {"model": name, "model_options": self._model_options(name, earlier), "task": self._task(earlier)}

    def _model_options(self, name: str | None, earlier: Path | None) -> dict[str, Any] | None:
        pairs = self.model_option or []
        if not pairs and self.hidden is None:
            return None
        if name is None:
            name = _name_from_run(earlier, "model")
        options = read_options(pairs, model_hints(name), f"the model {name}")
        return options if self.hidden is None else {"hidden": self.hidden, **options}

    def _task(self, earlier: Path | None) -> str | Task | None:
        if not self.task_option:
            return self.task
        name = self.task
        if name is None:
            if earlier is None:
                raise OptionError("--task-option needs a task: give --task, too")
            name = _name_from_run(earlier, "task")
        return make_task(name, **read_options(self.task_option, task_hints(name), f"the task {name}"))


def model_hints(name: str) -> dict[str, Any]:
    """The options of a model with their types."""
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return option_types(MODELS[name], "inputs")


def task_hints(name: str) -> dict[str, Any]:
    """The options of a task with their types."""
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return option_types(TASKS[name])


def _name_from_run(earlier: Path | None, kind: str) -> str:
    """Read the model or task of an earlier run; only where needed, because not every host has the run directory."""
    assert earlier is not None
    return str(read_config(earlier)[kind]["name"])


@dataclass(frozen=True, kw_only=True)
class StoppingOptions:
    """Length of training and frequency of evaluation."""

    epochs: Annotated[int | None, _training_option("Passes over the training snapshots.", "100")] = None
    evaluate_every: Annotated[int | None, _training_option("Epochs between evaluations.", "1", metavar="N")] = None
    eval_history: Annotated[
        str | None,
        _training_option(
            "Snapshots read for a prediction, up to the one predicted: as many as in training (auto), all, or N.",
            "auto",
            metavar="auto|all|N",
            parser=_read_history,
        ),
    ] = None
    patience: Annotated[
        int | None, _training_option("Stop after N evaluations without improvement; 0: never.", "20", metavar="N")
    ] = None
    fit_snapshots: Annotated[
        int | None,
        _training_option(
            "Fit scales of features and targets to the first N snapshots, as `strobe online` does.",
            "all training snapshots",
            metavar="N",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Optimizer and precision."""

    optimizer: Annotated[
        str | None, _training_option("Adam, or plain gradient descent (sgd).", "adam", metavar="adam|sgd")
    ] = None
    lr: Annotated[float | None, _training_option("Learning rate.", "0.01")] = None
    weight_decay: Annotated[float | None, _training_option("Weight decay.", "0")] = None
    clip: Annotated[float | None, _training_option("Largest norm of a step's gradient.", "none")] = None
    window: Annotated[
        int | None,
        _training_option("Snapshots per step: fewer need less memory, and truncate gradients earlier.", "all"),
    ] = None
    recompute: Annotated[
        int | None,
        _training_option(
            "Store states of every Nth snapshot only and recompute the rest in the backward pass: less memory, one "
            "more forward pass, equal gradients.",
            "never",
            metavar="N",
        ),
    ] = None
    precision: Annotated[
        str | None,
        _training_option(
            "tf32: float32 with rounded matrix products on a GPU, which is faster; bf16: tf32, and rows of cells take "
            "half the memory.",
            "float32",
            metavar="float32|tf32|bf16|float64",
        ),
    ] = None
    seed: Annotated[int | None, _training_option("Equal seeds give equal weights.", "0")] = None


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Device, threads and memory."""

    device: DeviceOption = None
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads of each rank.", show_default="its share of the cores", rich_help_panel=MACHINE_PANEL
        ),
    ] = None
    offload: Annotated[
        str | None,
        typer.Option(
            help="Keep snapshots in host memory between steps and prefetch them to the device. auto: if they do not "
            "fit on the device.",
            metavar="auto|never|always",
            show_default="auto",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic",
            help="Equal bits in every run on a GPU, or an error where an operation cannot give them.",
            show_default=False,
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None
