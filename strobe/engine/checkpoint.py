"""All that changes while a run trains, and how it is kept so that a killed run goes on to the same weights.

A checkpoint, ``checkpoints/epoch-000012``, holds everything, the best weights so far included. It is written under
another name and gets its own in one step, before older ones are removed: from the first on there is always a whole one,
and no moment at which its parts could disagree. ``best.pt`` repeats the best weights for those who only want to use
them. Both hold tensors and plain values, are read as such, and have checksums.

Weights are the same on all ranks, so rank 0 writes for all, and hosts need not share a disk.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from types import NoneType
from typing import Any

import torch
from torch import nn

from strobe.engine.machine import restore_random_state
from strobe.engine.nest import copied
from strobe.engine.optimiser import restore_optimiser
from strobe.engine.weights_file import read_weights, write_weights
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.io.atomic import UNFINISHED, sync_folder, unfinished_name

LAST, BEST = "checkpoints", "best.pt"
KEPT = 2
"""The newest, and one more in case the disk damages that."""
SAVE_EVERY_S = 2.0
"""Epochs shorter than this are not all saved: a run that goes on repeats the few after the last checkpoint."""

_VALUES = (
    *("epoch", "best", "best_epoch", "best_weights", "stale"),
    *("random", "exchanged", "scheduled", "drawn", "tuned", "arrived"),
)
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "head", "optimiser"), (dict,)),
    **dict.fromkeys(("epoch", "best_epoch", "stale"), (int,)),
    **dict.fromkeys(("best_weights", "exchanged", "scheduled", "tuned", "arrived"), (dict, NoneType)),
    **{"best": (float, int, NoneType), "random": (list,), "drawn": (list, NoneType)},
}
"""What a checkpoint holds."""
_NAME = re.compile(r"epoch-(\d+)")
_NEVER_SAVED = "the run was stopped before its first was saved"

Weights = dict[str, dict[str, Any]]


@dataclass
class State:
    """The weights and all that goes with them, after ``epoch`` epochs."""

    model: nn.Module
    head: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    best_weights: Weights | None = None
    stale: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    random: list[dict[str, Any]] = field(default_factory=list)
    """Where random numbers stand on every rank, when it was last gathered."""
    exchanged: dict[str, Any] | None = None
    """What exchanges of every rank remember, while it is saved or until they have it back; None if they need not."""
    scheduled: dict[str, Any] | None = None
    """What is known of batches and their order, on rank 0 and where it has been taken up; None if it never changes."""
    drawn: list[dict[str, Any]] | None = None
    """What says which windows each rank makes next, while it is saved or until they have it back; None if none do."""
    tuned: dict[str, Any] | None = None
    """Where tuning has come to; None where nothing is tuned."""
    arrived: dict[str, Any] | None = None
    """How snapshots that arrived were placed, on rank 0, while it is saved or until it is taken up; None if all are
    there from the beginning."""

    def captured(self) -> dict[str, Any]:
        """All of it as tensors and plain values, copied to the CPU: training may go on."""
        values = {name: getattr(self, name) for name in _VALUES}
        kept = copied({**self.weights(), "optimiser": self.optimiser.state_dict(), **values}, "cpu")
        history = [{name: value for name, value in line.items() if name != "ranks"} for line in self.history]
        return {**kept, "history": history}

    def adopt(self, found: dict[str, Any], rank: int) -> None:
        """Goes on from what was captured, on this or another number of ranks."""
        load_weights(self.model, self.head, found)
        restore_optimiser(self.optimiser, found["optimiser"])
        for name in _VALUES:
            setattr(self, name, found[name])
        if rank:  # the first reads it from the record, with the ledgers of all
            self.history = found["history"]
        if rank < len(self.random):
            restore_random_state(self.random[rank])

    def weights(self) -> Weights:
        return {"model": self.model.state_dict(), "head": self.head.state_dict()}

    def judge(
        self, value: float | None, higher_is_better: bool, *, epoch: int | None = None, weights: Weights | None = None
    ) -> None:
        """Takes note of a validation metric: the best weights so far are copied, or patience runs on. ``weights``:
        those after an ``epoch`` that is over since, where they are not the latest.

        Where nothing could be asked of the validation part (None), the latest weights are the best. A metric that
        is no number is never the best.
        """
        if value is not None and math.isnan(value):
            self.stale += 1
            return
        known = value is not None and self.best is not None
        if known and not (value > self.best if higher_is_better else value < self.best):  # type: ignore[operator]
            self.stale += 1
            return
        self.best, self.best_epoch, self.stale = value, self.epoch if epoch is None else epoch, 0
        self.best_weights = copied(self.weights()) if weights is None else weights

    def use_best(self) -> None:
        """Goes back to the best weights; the latest are the best where none were ever judged."""
        if self.best_weights is not None:
            load_weights(self.model, self.head, self.best_weights)

    def is_finite(self) -> bool:
        """Whether every weight, and every average that evaluation uses, is a number. One look for all, because looking
        waits for the device."""
        held = [*self.model.parameters(), *self.model.buffers(), *self.head.parameters(), *self.head.buffers()]
        sums = [each.detach().sum().double() for each in held]
        return not sums or bool(torch.stack(sums).isfinite().all())


class Checkpoints:
    """Saves a state into a run's directory at the end of epochs, though not more often than is useful.

    Training waits only while the state is copied; a thread writes the copy. What goes wrong there is raised by the
    next ``save``, by ``wait`` or by ``close``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._saved_at = -float("inf")
        self._best_saved = 0
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    def is_due(self) -> bool:
        """Not while one is still being written: a slow disk means fewer checkpoints, not slower training."""
        busy = self._under_way is not None and not self._under_way.done()
        return not busy and time.monotonic() - self._saved_at >= SAVE_EVERY_S

    def save(self, state: State, *, first: Callable[[], object] | None = None) -> None:
        """Copies the state and has it written, after ``first``, which puts on the disk what belongs to it."""
        self.wait()
        self._under_way = self._thread.submit(self._write, state.captured(), first)
        self._saved_at = time.monotonic()

    def wait(self) -> None:
        """Until the last checkpoint is written."""
        if self._under_way is not None:
            writing, self._under_way = self._under_way, None
            writing.result()

    def close(self) -> None:
        """Waits, and writes no more."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def restore(self, state: State) -> bool:
        """Puts the newest checkpoint, which has no history, into a fresh state; says whether there was one."""
        if not has_checkpoint(self.folder):
            return False
        with restoring(f"the checkpoint in {self.folder / LAST}"):
            state.adopt(read(self.folder / LAST), 0)
        return True

    def sweep(self) -> None:
        """Removes what a killed process has left unfinished."""
        for half in (self.folder / LAST).glob(UNFINISHED):
            rmtree(half, ignore_errors=True)

    def clear(self) -> None:
        """Removes all, the oldest first: what is left at any moment belongs together."""
        self.sweep()
        for old in _in(self.folder / LAST):
            _remove(old)
        (self.folder / BEST).unlink(missing_ok=True)

    def _write(self, kept: dict[str, Any], first: Callable[[], object] | None) -> None:
        del kept["history"]  # the record has it, a line an epoch
        if first is not None:
            first()
        if kept["best_weights"] is not None and kept["best_epoch"] != self._best_saved:
            best = {**kept["best_weights"], "epoch": kept["best_epoch"], "metric": kept["best"]}
            write_weights(self.folder / BEST, best)
            self._best_saved = kept["best_epoch"]
        target = self.folder / LAST / _name(kept["epoch"])
        if not target.exists():  # a run that ends has often just saved its last epoch
            _write_whole(target, kept)
        for old in _in(self.folder / LAST)[:-KEPT]:
            _remove(old)


def has_checkpoint(path: Path) -> bool:
    """Whether a run's directory has a checkpoint to go on from."""
    return bool(_in(path / LAST))


def read(path: Path) -> dict[str, Any]:
    """The tensors and plain values of ``best.pt``, or of the newest of a run's checkpoints; nothing is ever run."""
    if path.name == LAST:
        return _read_newest(path)
    try:
        return read_weights(path)
    except FileNotFoundError:
        raise FormatError(f"there is no checkpoint at {path}: {_NEVER_SAVED}") from None


def best_weights(path: Path) -> tuple[Weights, int]:
    """The best weights of the run in a directory and their epoch; the latest weights where none were judged."""
    if (path / BEST).exists():
        kept = read(path / BEST)
        return kept, kept["epoch"]
    newest = read(path / LAST)
    best = newest["best_weights"]
    return (newest, newest["epoch"]) if best is None else (best, newest["best_epoch"])


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Raise FormatError, which names ``what`` was read, where a saved state does not fit what it is restored into."""
    try:
        yield
    except StrobeError:
        raise
    except Exception as error:  # of torch, numpy or whatever takes up the state
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{what} does not fit this run: {why}") from error


def _read_newest(path: Path) -> dict[str, Any]:
    """One that is damaged is not passed over: whether to go on from the one before is for people to say."""
    from strobe.engine.checkpoint_folder import is_whole

    there = _in(path)
    if not there:
        raise FormatError(f"there is no checkpoint in {path}: {_NEVER_SAVED}")
    *before, newest = there
    try:
        return _read_one(newest)
    except FormatError as error:
        if not before or not is_whole(before[-1]):
            raise
        raise FormatError(
            f"{error}. The checkpoint before it, {before[-1].name}, is whole: remove {newest} to go on from that one"
        ) from error


def _read_one(path: Path) -> dict[str, Any]:
    """The values of one checkpoint, each of the type that a state has."""
    from strobe.engine.checkpoint_folder import read_folder

    found = read_folder(path)
    if not isinstance(found, dict) or found.keys() != _TYPES.keys():
        raise FormatError(f"{path} is damaged: it does not hold {', '.join(_TYPES)} and nothing else")
    for name, types in _TYPES.items():
        if not isinstance(found[name], types) or isinstance(found[name], bool):
            raise FormatError(f"{path} is damaged: {name} cannot be a {type(found[name]).__name__}")
    if path.name != _name(found["epoch"]):
        raise FormatError(f"{path} is damaged: it holds epoch {found['epoch']}")
    return found


def _name(epoch: int) -> str:
    return f"epoch-{epoch:06d}"


def _in(path: Path) -> list[Path]:
    """The checkpoints of a folder, the newest last. They get their names when they are whole."""
    named = {int(match[1]): found for found in path.glob("epoch-*") if (match := _NAME.fullmatch(found.name))}
    return [named[epoch] for epoch in sorted(named)]


def _write_whole(target: Path, kept: dict[str, Any]) -> None:
    """Writes a checkpoint beside its place, waits for the disk, then gives it its name."""
    from strobe.engine.checkpoint_folder import write_folder  # loads much of torch: only here

    target.parent.mkdir(exist_ok=True)
    unfinished = target.with_name(unfinished_name(target.name))
    try:
        write_folder(unfinished, kept)
        unfinished.rename(target)
    except BaseException:
        rmtree(unfinished, ignore_errors=True)
        raise
    for folder in (target.parent, target.parent.parent):
        sync_folder(folder)  # the new names, too


def _remove(target: Path) -> None:
    """Takes a checkpoint's name away before its files: it is never there in part."""
    unfinished = target.with_name(unfinished_name(target.name))
    target.rename(unfinished)
    rmtree(unfinished)


def load_weights(model: nn.Module, head: nn.Module, weights: Weights) -> None:
    """Puts saved weights into a model and its head."""
    try:
        model.load_state_dict(weights["model"])
        head.load_state_dict(weights["head"])
    except Exception as error:  # a model's own set_extra_state may raise anything
        raise OptionError(f"the saved weights do not fit this model: {error}") from error
