"""How a run goes, as one value: what the command line sets and the run directory remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch

from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.options import check_options, option_types

MAY_CHANGE = ("epochs", "patience", "recompute", "offload", "device", "threads", "deterministic")
"""Settings that a resumed run may change. With another device, number of threads or segment length of a model with
dropout, its weights are as good but not bit-identical."""

ONLINE_ONLY = ("steps_per_snapshot", "validation_share", "reset_optimizer", "replay", "replay_memory")
"""Settings of runs whose snapshots arrive one by one."""

MAX_FACTOR = 1e30
"""The largest number that gradients and weights are multiplied by: float32 holds its products with them."""

OptimizerName = Literal["adam", "sgd"]
Precision = Literal["float32", "tf32", "bf16", "float64"]
Offload = Literal["auto", "never", "always"]
EvalHistory = Literal["auto", "all"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of training that are not the model's, the task's or the graph's.

    ``window`` is the number of snapshots per optimizer step: None takes all training snapshots at once; with less,
    states are carried from window to window, gradients are not. ``recompute`` cuts a window into segments of that many
    snapshots whose insides are computed again in backward: memory for one segment instead of all, for one
    more forward pass, and the same gradients. ``clip`` limits the norm of the gradient of a step; 0 does not.
    ``optimizer`` is Adam or plain gradient descent. ``patience`` stops a run whose validation metric has not improved
    for that many evaluations; 0 never does. ``fit_snapshots`` is the number of first snapshots that scales of features
    and of targets are fitted to; None fits them to all training snapshots, which online training cannot.
    Online training takes at most ``steps_per_snapshot`` optimizer steps on each snapshot that arrives. With a
    ``validation_share`` of the snapshot's examples, which are not trained on, ``patience`` ends these steps after as
    many without a lower validation loss, and the weights with the lowest one stay; without it all steps are taken.
    ``reset_optimizer`` starts each snapshot with a new optimizer. Each step also trains on ``replay`` earlier
    snapshots, drawn at random from the latest ``replay_memory``, whose initial states are kept; all examples of a step
    have the same weight.
    ``eval_history`` is how far back scoring and prediction read: ``auto`` as far as the plan's batching trains (all
    history where states are carried, the same groups or windows where they are not), ``all`` carries states from the
    first snapshot on, a number reads that many snapshots up to the one predicted, from an initial state.
    ``precision`` tf32 lets a GPU round the factors of products to 11 bits, which is faster; elsewhere it is float32.
    bf16 does so, too, and has rows of cells (features, states, embeddings) stored in 16 bits, 8 of them of the number:
    half the memory; weights and sums stay float32.
    ``offload`` says where windows are between steps: on the device, or in the host's memory, from where they come while
    others are computed; auto looks what fits. ``deterministic`` has torch refuse what does not give the same bits every
    time, which on a GPU some of its operations do not.
    """

    epochs: int = 100
    optimizer: OptimizerName = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    clip: float = 0.0
    window: int | None = None
    recompute: int | None = None
    evaluate_every: int = 1
    eval_history: int | EvalHistory = "auto"
    patience: int = 20
    seed: int = 0
    steps_per_snapshot: int = 1
    validation_share: float = 0.0
    reset_optimizer: bool = False
    replay: int = 0
    replay_memory: int = 32
    fit_snapshots: int | None = None
    precision: Precision = "float32"
    offload: Offload = "auto"
    device: str = "auto"
    threads: int | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        check_options("training", asdict(self), option_types(Settings))
        counts = ("epochs", "evaluate_every", "window", "recompute", "steps_per_snapshot", "fit_snapshots", "threads")
        for name in (*counts, "replay_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")
        if isinstance(self.eval_history, int) and self.eval_history < 1:
            raise OptionError(f"eval_history must be auto, all or at least 1 snapshot, not {self.eval_history}")
        for name in ("weight_decay", "clip", "patience", "seed", "replay"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.replay > self.replay_memory:
            raise OptionError(
                f"{self.replay} earlier snapshots cannot be drawn from the latest {self.replay_memory}: give a smaller "
                "replay or a larger replay_memory"
            )
        if not 0 <= self.validation_share < 1:
            raise OptionError(f"validation_share must be at least 0 and less than 1, not {self.validation_share:g}")
        if not self.lr > 0:
            raise OptionError(f"the learning rate must be positive, not {self.lr}")
        for name in ("lr", "weight_decay", "clip"):
            if not getattr(self, name) <= MAX_FACTOR:
                raise OptionError(f"{name} must be at most {MAX_FACTOR:g}, not {getattr(self, name)}")

    @property
    def dtype(self) -> torch.dtype:
        """The kind of numbers that weights are, and sums."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def row_dtype(self) -> torch.dtype:
        """The kind of numbers that rows of cells are stored as."""
        return torch.bfloat16 if self.precision == "bf16" else self.dtype

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """The same settings but for some; a name that is no setting is refused with the nearest one."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise UnknownNameError("setting", name, known)
        return replace(self, **changes)

    def fixed(self) -> dict[str, Any]:
        """What a resumed run must not change."""
        return {name: value for name, value in asdict(self).items() if name not in MAY_CHANGE}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class DivergedError(StrobeError):
    """The loss or the weights are no numbers any more."""

    def __init__(self, what: str, epoch: int, settings: Settings) -> None:
        clip = "--clip 1" if not settings.clip else f"a smaller --clip than {settings.clip:g}"
        super().__init__(
            f"{what} in epoch {epoch} is not a finite number: try a lower --lr (it was {settings.lr:g}) or {clip}. "
            "The last checkpoint, if there is one, is from before that."
        )
