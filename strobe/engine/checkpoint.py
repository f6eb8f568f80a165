"""All that changes while a run trains, and how it is kept so that a killed run goes on to the same weights.

``last.pt`` holds everything, the best weights so far included, in one file that is replaced in one step: there is no
moment at which its parts could disagree. ``best.pt`` repeats the best weights for those who only want to use them.
Both hold tensors and plain values, and are read as such.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from strobe.atomic import write_whole
from strobe.engine.machine import restore_random_state
from strobe.errors import FormatError, OptionError

LAST, BEST = "last.pt", "best.pt"
SAVE_EVERY_S = 2.0
"""Epochs shorter than this are not all saved: a run that goes on repeats the few after the last checkpoint."""

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

    def captured(self) -> dict[str, Any]:
        """All of it as tensors and plain values."""
        return {
            **self.weights(),
            "optimiser": self.optimiser.state_dict(),
            "epoch": self.epoch,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_weights": self.best_weights,
            "stale": self.stale,
            "history": len(self.history),
            "random": self.random,
        }

    def adopt(self, found: dict[str, Any], rank: int) -> None:
        """Goes on from what was captured, on this or another number of ranks."""
        load_weights(self.model, self.head, found)
        self.optimiser.load_state_dict(found["optimiser"])
        for name in ("epoch", "best", "best_epoch", "best_weights", "stale", "random"):
            setattr(self, name, found[name])
        if rank < len(self.random):
            restore_random_state(self.random[rank])

    def weights(self) -> Weights:
        return {"model": self.model.state_dict(), "head": self.head.state_dict()}

    def judge(self, value: float | None, higher_is_better: bool) -> None:
        """Takes note of a validation metric: the best weights so far are copied, or patience runs on.

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
        self.best, self.best_epoch, self.stale = value, self.epoch, 0
        self.best_weights = {part: _copied(values) for part, values in self.weights().items()}

    def use_best(self) -> None:
        """Goes back to the best weights; the latest are the best where none were ever judged."""
        if self.best_weights is not None:
            load_weights(self.model, self.head, self.best_weights)

    def is_finite(self) -> bool:
        """Whether every weight is a number. One look for all, because looking waits for the device."""
        sums = [p.detach().sum().double() for part in (self.model, self.head) for p in part.parameters()]
        return not sums or bool(torch.stack(sums).isfinite().all())


class Checkpoints:
    """Saves a state into a directory at the end of epochs, though not more often than is useful."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._saved_at = -float("inf")
        self._best_saved = 0

    def is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= SAVE_EVERY_S

    def save(self, state: State) -> None:
        if state.best_weights is not None and state.best_epoch != self._best_saved:
            kept = {**state.best_weights, "epoch": state.best_epoch, "metric": state.best}
            write_whole(self.folder / BEST, lambda file: torch.save(kept, file))
            self._best_saved = state.best_epoch
        write_whole(self.folder / LAST, lambda file: torch.save(state.captured(), file))
        self._saved_at = time.monotonic()

    def restore(self, state: State) -> bool:
        """Puts the last checkpoint into a fresh state; says whether there was one."""
        if not (self.folder / LAST).exists():
            return False
        state.adopt(read(self.folder / LAST), 0)
        return True


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's tensors and plain values; nothing in the file is ever run."""
    try:
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FormatError(f"there is no checkpoint at {path}: the run was stopped before its first was saved") from None
    except Exception as error:  # torch says in many ways that it cannot read a file
        raise FormatError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    return found


def load_weights(model: nn.Module, head: nn.Module, weights: Weights) -> None:
    """Puts saved weights into a model and its head."""
    try:
        model.load_state_dict(weights["model"])
        head.load_state_dict(weights["head"])
    except RuntimeError as error:
        raise OptionError(f"the saved weights do not fit this model: {error}") from error


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in values.items()}
