"""Option groups of training: model and task, optimization, machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from strobe.cli.options.groups import option
from strobe.cli.options.run import MACHINE_PANEL, TRAIN_PANEL, DeviceOption, read_options
from strobe.engine.records.run_directory import read_config
from strobe.errors import OptionError, UnknownNameError
from strobe.models import MODELS
from strobe.options import option_types
from strobe.tasks import TASKS, Task, make_task

DEFAULT_MODEL = "tgcn"
_TASK = "A task that `strobe models` lists. Without it, the one that fits the graph's labels."


def _read_history(text: str) -> int | str:
    """Parse a number of snapshots, or a word that ``Settings`` checks."""
    return int(text) if text.isdecimal() else text


@dataclass(frozen=True, kw_only=True)
class ModelAndTaskOptions:
    """A model and a task with their own options."""

    model: Annotated[
        str | None, option("A model that `strobe models` lists.", "--model", "-m", default=DEFAULT_MODEL)
    ] = None
    task: Annotated[str | None, option(_TASK, "--task", "-t")] = None
    hidden: Annotated[int | None, option("Width of the model's embeddings.", default="32")] = None
    model_option: Annotated[
        list[str] | None, option("An option of the model, such as layers=2.", metavar="NAME=VALUE")
    ] = None
    task_option: Annotated[
        list[str] | None, option("An option of the task, such as ahead=2.", metavar="NAME=VALUE")
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
        options = read_options(pairs, option_hints("model", name), f"the model {name}")
        return options if self.hidden is None else {"hidden": self.hidden, **options}

    def _task(self, earlier: Path | None) -> str | Task | None:
        if not self.task_option:
            return self.task
        name = self.task
        if name is None:
            if earlier is None:
                raise OptionError("--task-option needs a task: give --task, too")
            name = _name_from_run(earlier, "task")
        return make_task(name, **read_options(self.task_option, option_hints("task", name), f"the task {name}"))


def option_hints(kind: str, name: str) -> dict[str, Any]:
    """The options of a model or a task with their types.

    Raises:
        UnknownNameError: there is no such model or task.
    """
    known: Mapping[str, Callable[..., Any]] = MODELS if kind == "model" else TASKS
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return option_types(known[name], "inputs")


def _name_from_run(earlier: Path | None, kind: str) -> str:
    """Read the model or task of an earlier run; only where needed, because not every host has the run directory."""
    assert earlier is not None
    return str(read_config(earlier)[kind]["name"])


_training = partial(option, panel=TRAIN_PANEL)
_HISTORY = "Snapshots read for a prediction, up to the one predicted: as many as in training (auto), all, or N."
_PATIENCE = "Stop after N evaluations without improvement; 0: never."
_FIT = "Fit scales of features and targets to the first N snapshots, as `strobe online` does."
_WINDOW = "Snapshots per step: fewer need less memory, and truncate gradients earlier."
_RECOMPUTE = (
    "Store states of every Nth snapshot only and recompute the rest in the backward pass: less memory, one more "
    "forward pass, equal gradients."
)
_PRECISION = (
    "tf32: float32 with rounded matrix products on a GPU, which is faster; bf16: tf32, and rows of cells take half the "
    "memory."
)


@dataclass(frozen=True, kw_only=True)
class StoppingOptions:
    """Length of training and frequency of evaluation."""

    epochs: Annotated[int | None, _training("Passes over the training snapshots.", default="100")] = None
    evaluate_every: Annotated[int | None, _training("Epochs between evaluations.", default="1", metavar="N")] = None
    eval_history: Annotated[
        str | None, _training(_HISTORY, default="auto", metavar="auto|all|N", parser=_read_history)
    ] = None
    patience: Annotated[int | None, _training(_PATIENCE, default="20", metavar="N")] = None
    fit_snapshots: Annotated[int | None, _training(_FIT, default="all training snapshots", metavar="N")] = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Optimizer and precision."""

    optimizer: Annotated[
        str | None, _training("Adam, or plain gradient descent (sgd).", default="adam", metavar="adam|sgd")
    ] = None
    lr: Annotated[float | None, _training("Learning rate.", default="0.01")] = None
    weight_decay: Annotated[float | None, _training("Weight decay.", default="0")] = None
    clip: Annotated[float | None, _training("Largest norm of a step's gradient.", default="none")] = None
    window: Annotated[int | None, _training(_WINDOW, default="all")] = None
    recompute: Annotated[int | None, _training(_RECOMPUTE, default="never", metavar="N")] = None
    precision: Annotated[str | None, _training(_PRECISION, default="float32", metavar="float32|tf32|bf16|float64")] = (
        None
    )
    seed: Annotated[int | None, _training("Equal seeds give equal weights.", default="0")] = None


_machine = partial(option, panel=MACHINE_PANEL)
_OFFLOAD = (
    "Keep snapshots in host memory between steps and prefetch them to the device. auto: if they do not fit on the "
    "device."
)
_DETERMINISTIC = "Equal bits in every run on a GPU, or an error where an operation cannot give them."


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Device, threads and memory."""

    device: DeviceOption = None
    threads: Annotated[int | None, _machine("CPU threads of each rank.", default="its share of the cores")] = None
    offload: Annotated[str | None, _machine(_OFFLOAD, default="auto", metavar="auto|never|always")] = None
    deterministic: Annotated[bool | None, _machine(_DETERMINISTIC, "--deterministic", default=False)] = None
