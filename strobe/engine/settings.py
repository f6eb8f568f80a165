"""How a run goes, as one value: what the command line sets and the run directory remembers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from strobe.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of training that are not the model's, the task's or the graph's.

    ``window`` is the number of snapshots per optimiser step: None takes all training snapshots at once; with less,
    states are carried from window to window, gradients are not. ``recompute`` cuts a window into segments of so many
    snapshots whose insides are computed again in backward: memory for one segment instead of all, for about a third
    more time, and the same gradients. ``patience`` stops a run whose validation metric has not improved for so
    many evaluations; 0 never does.
    """

    epochs: int = 100
    lr: float = 0.01
    weight_decay: float = 0.0
    clip: float = 0.0
    window: int | None = None
    recompute: int | None = None
    evaluate_every: int = 1
    patience: int = 20
    seed: int = 0
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "evaluate_every", "window", "recompute", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")
        for name in ("weight_decay", "clip", "patience", "seed"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be negative, not {getattr(self, name)}")
        if not self.lr > 0:
            raise OptionError(f"the learning rate must be positive, not {self.lr}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
