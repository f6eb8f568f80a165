"""The state of a run, and checkpoints of it: a killed run resumes to the same weights.

A checkpoint, ``checkpoints/epoch-000012.safetensors``, holds the whole state, the best weights included. It is written
under a temporary name and renamed before older ones are removed, so there is always a complete one.
``best.safetensors`` repeats the best weights for use without Strobe.

Weights are the same on all ranks: rank 0 writes for all, and hosts need not share a disk.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shutil import rmtree
from types import NoneType
from typing import Any

import torch
from torch import nn
from torch._utils import _flatten_dense_tensors as flatten

from strobe.engine.checkpoint.serialization import copy_tree, is_intact, read_tree, write_tree
from strobe.engine.machine import restore_random_state
from strobe.engine.optimizer import load_optimizer_state
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.io.atomic import UNFINISHED_GLOB, sync_folder
from strobe.sync.base import Optimizer

LAST, BEST = "checkpoints", "best.safetensors"
NUM_RETAINED = 2
"""The newest, and one more in case the disk damages that."""
SAVE_EVERY_S = 2.0
"""Minimum seconds between checkpoints: a resumed run repeats the epochs after the last one."""

_FEW = 1 << 14
"""Numbers of a tensor that are looked at one by one; of larger ones their sum is."""

_VALUES = ("epoch", "best", "best_epoch", "best_weights", "evaluations_without_improvement", "random", "parts")
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "head", "optimizer", "parts"), (dict,)),
    **dict.fromkeys(("epoch", "best_epoch", "evaluations_without_improvement"), (int,)),
    **{"best": (float, int, NoneType), "best_weights": (dict, NoneType), "random": (list,)},
}
"""What a checkpoint holds."""
_BEST_TYPES = {"model": (dict,), "head": (dict,), "epoch": (int,), "metric": _TYPES["best"]}
"""What the file of the best weights holds."""
_NAME = re.compile(r"epoch-(\d+)\.safetensors")
_NEVER_SAVED_HINT = "the run was stopped before its first was saved"

Weights = dict[str, dict[str, Any]]


@dataclass
class TrainState:
    """The weights and all that goes with them, after ``epoch`` epochs."""

    model: nn.Module
    head: nn.Module
    optimizer: Optimizer
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    best_weights: Weights | None = None
    evaluations_without_improvement: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    random: list[dict[str, Any]] = field(default_factory=list)
    """Where random numbers stand on every rank, when it was last gathered."""
    parts: dict[str, Any] = field(default_factory=dict)
    """States of the run's sessions by name (``source``, ``exchange``, ``policy``, ``online``): while a checkpoint is
    written, and after it was read until each has taken up its own."""

    def should_stop(self, patience: int) -> bool:
        """Whether ``patience`` evaluations in a row have brought no improvement; never with 0."""
        return bool(patience) and self.evaluations_without_improvement >= patience

    def state_dict(self) -> dict[str, Any]:
        """The whole state as tensors and plain values, copied to the CPU: training may continue."""
        values = {name: getattr(self, name) for name in _VALUES}
        captured = copy_tree({**self.weights(), "optimizer": self.optimizer.state_dict(), **values}, "cpu")
        history = [{name: value for name, value in line.items() if name != "ranks"} for line in self.history]
        return {**captured, "history": history}

    def load_state_dict(self, found: dict[str, Any], rank: int) -> None:
        """Goes on from what was captured, on this or another number of ranks."""
        load_weights(self.model, self.head, found)
        load_optimizer_state(self.optimizer, found["optimizer"])
        for name in _VALUES:
            setattr(self, name, found[name])
        if rank:  # the first reads it from the record, with the ledgers of all
            self.history = found["history"]
        if rank < len(self.random):
            restore_random_state(self.random[rank])

    def weights(self) -> Weights:
        return {"model": self.model.state_dict(), "head": self.head.state_dict()}

    def record_metric(
        self, value: float | None, higher_is_better: bool, *, epoch: int | None = None, weights: Weights | None = None
    ) -> None:
        """Record a validation metric: copy the weights if they are the best so far, otherwise count the evaluation.

        Args:
            value: the metric; None where the validation part has no examples: the latest weights are then the best. NaN
        is never the best.
            higher_is_better: whether larger values are better.
            epoch: the epoch of ``weights``, where they are not the latest.
            weights: the evaluated weights, where they are not the latest.
        """
        if value is not None and math.isnan(value):
            self.evaluations_without_improvement += 1
            return
        known = value is not None and self.best is not None
        if known and not (value > self.best if higher_is_better else value < self.best):  # type: ignore[operator]
            self.evaluations_without_improvement += 1
            return
        self.best, self.best_epoch, self.evaluations_without_improvement = (
            value,
            self.epoch if epoch is None else epoch,
            0,
        )
        self.best_weights = copy_tree(self.weights()) if weights is None else weights

    def use_best(self) -> None:
        """Load the best weights; the latest are the best where none were evaluated."""
        if self.best_weights is not None:
            load_weights(self.model, self.head, self.best_weights)

    def is_finite(self) -> bool:
        """Whether every weight, and every average that evaluation uses, is a number. One look for all, because looking
        waits for the device."""
        modules = chain(self.model.modules(), self.head.modules())
        # Their own dicts: ``parameters()`` puts names together, in as many microseconds as all the rest takes.
        found = chain.from_iterable((*each._parameters.values(), *each._buffers.values()) for each in modules)
        with torch.no_grad():
            numbers = [each if each.numel() <= _FEW else each.sum() for each in found if each is not None]
            return not numbers or bool(flatten(numbers).isfinite().all())


class Checkpoints:
    """Saves a state into a run's directory at the end of epochs, though not more often than is useful.

    Training waits only while the state is copied; a thread writes the copy. What goes wrong there is raised by the
    next ``save``, by ``wait`` or by ``close``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._saved_at = -float("inf")
        self._best_saved = -1
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

    def is_due(self) -> bool:
        """Not while one is still being written: a slow disk means fewer checkpoints, not slower training."""
        busy = self._pending is not None and not self._pending.done()
        return not busy and time.monotonic() - self._saved_at >= SAVE_EVERY_S

    def save(self, state: TrainState, *, first: Callable[[], object] | None = None) -> None:
        """Copies the state and has it written, after ``first``, which puts on the disk what belongs to it."""
        self.wait()
        self._pending = self._thread.submit(self._write, state.state_dict(), first)
        self._saved_at = time.monotonic()

    def wait(self) -> None:
        """Until the last checkpoint is written."""
        if self._pending is not None:
            writing, self._pending = self._pending, None
            writing.result()

    def close(self) -> None:
        """Waits, and writes no more."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def restore(self, state: TrainState) -> bool:
        """Load the newest checkpoint, which has no history, into a new state; whether there was one."""
        if not has_checkpoint(self.folder):
            return False
        with loading(f"the checkpoint in {self.folder / LAST}"):
            state.load_state_dict(read_checkpoint(self.folder / LAST), 0)
        return True

    def remove_unfinished(self) -> None:
        """Removes what a killed process has left unfinished."""
        for half in (self.folder / LAST).glob(UNFINISHED_GLOB):
            half.unlink()

    def clear(self) -> None:
        """Removes all, the oldest first: what is left at any moment belongs together."""
        for old in _list_checkpoints(self.folder / LAST):
            old.unlink()
        rmtree(self.folder / LAST, ignore_errors=True)  # unfinished ones, and those of older formats
        (self.folder / BEST).unlink(missing_ok=True)

    def _write(self, captured: dict[str, Any], first: Callable[[], object] | None) -> None:
        del captured["history"]  # the record has it, a line an epoch
        if first is not None:
            first()
        if captured["best_weights"] is not None and captured["best_epoch"] != self._best_saved:
            best = {**captured["best_weights"], "epoch": captured["best_epoch"], "metric": captured["best"]}
            write_tree(self.folder / BEST, best)
            self._best_saved = captured["best_epoch"]
        target = self.folder / LAST / _file_name(captured["epoch"])
        if not target.exists():  # a run that ends has often just saved its last epoch
            target.parent.mkdir(exist_ok=True)
            write_tree(target, captured)
            sync_folder(self.folder)
        for old in _list_checkpoints(self.folder / LAST)[:-NUM_RETAINED]:
            old.unlink()


def has_checkpoint(path: Path) -> bool:
    """Whether a run directory has a checkpoint to resume from."""
    return bool(_list_checkpoints(path / LAST))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The tensors and plain values of the best weights, or of the newest of a run's checkpoints."""
    if path.name == LAST:
        return _read_newest(path)
    try:
        return _read_typed(path, _BEST_TYPES)
    except FileNotFoundError:
        raise FormatError(f"there is no checkpoint at {path}: {_NEVER_SAVED_HINT}") from None


def best_weights(path: Path) -> tuple[Weights, int]:
    """The best weights of a run directory and their epoch; the latest weights where none were evaluated."""
    if (path / BEST).exists():
        best = read_checkpoint(path / BEST)
        return best, best["epoch"]
    newest = read_checkpoint(path / LAST)
    if newest["best_weights"] is None:
        return newest, newest["epoch"]
    return newest["best_weights"], newest["best_epoch"]


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Raise FormatError, which names ``what`` was read, where a saved state does not fit what it is restored into."""
    try:
        yield
    except StrobeError:
        raise
    except Exception as error:  # of torch, numpy or whatever takes up the state
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{what} does not fit this run: {why}") from error


def _read_newest(path: Path) -> dict[str, Any]:
    """Read the newest checkpoint. A damaged one is refused, not skipped: the user decides whether to resume from the
    one before."""
    if not (checkpoints := _list_checkpoints(path)):
        raise FormatError(f"there is no checkpoint in {path}: {_NEVER_SAVED_HINT}")
    *before, newest = checkpoints
    try:
        found = _read_typed(newest, _TYPES)
        if newest.name != _file_name(found["epoch"]):
            raise FormatError(f"{newest} is damaged: it holds epoch {found['epoch']}")
    except FormatError as error:
        if not before or not is_intact(before[-1]):
            raise
        raise FormatError(
            f"{error}. The checkpoint before it, {before[-1].name}, is whole: remove {newest} to go on from that one"
        ) from error
    return found


def _read_typed(path: Path, types: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    """The values of a file, each of its type."""
    found = read_tree(path)
    if not isinstance(found, dict) or found.keys() != types.keys():
        raise FormatError(f"{path} is damaged: it does not hold {', '.join(types)} and nothing else")
    for name, allowed in types.items():
        if not isinstance(found[name], allowed) or isinstance(found[name], bool):
            raise FormatError(f"{path} is damaged: {name} cannot be a {type(found[name]).__name__}")
    if found["epoch"] < 0:
        raise FormatError(f"{path} is damaged: it holds epoch {found['epoch']}")
    return found


def _file_name(epoch: int) -> str:
    return f"epoch-{epoch:06d}.safetensors"


def _list_checkpoints(path: Path) -> list[Path]:
    """The checkpoints of a folder, the newest last. They get their names when they are whole."""
    named = {int(match[1]): found for found in path.glob("epoch-*") if (match := _NAME.fullmatch(found.name))}
    return [named[epoch] for epoch in sorted(named)]


def load_weights(model: nn.Module, head: nn.Module, weights: Weights) -> None:
    """Puts saved weights into a model and its head."""
    try:
        model.load_state_dict(weights["model"])
        head.load_state_dict(weights["head"])
    except Exception as error:  # a model's own set_extra_state may raise anything
        raise OptionError(f"the saved weights do not fit this model: {error}") from error
