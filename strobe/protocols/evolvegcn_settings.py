"""Settings of EvolveGCN-O without pair features in the rankings of links on snapshots.

The authors concatenate the embeddings of both ends and read degrees as one-hot columns. Here the score of a pair is a
product of two encoders, and features are random signatures, which stand for one-hot ids. Unless the encoder of a
destination reads its own signature, and that of a source the signatures of its neighbors, a model learns only the
popularity of nodes. So embeddings keep the features of their node (``skip``), and signatures are wide and enter the
convolution as they are (no ``lift``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SIGNATURE = 32
"""Columns of random signatures among the inputs of other models without pair features."""


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """What a method is trained with.

    Attributes:
        training: settings of training, a step per snapshot.
        signature: columns of random signatures, which with degrees are the features; 0: the features of the graph.
        model: options of the model.
        task: options of the task.
    """

    training: Mapping[str, Any]
    signature: int
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)

    def with_epochs(self, epochs: int) -> MethodSettings:
        return replace(self, training={**self.training, "epochs": epochs})

    def to_json(self) -> dict[str, Any]:
        """All of them by name, as results keep them."""
        return {**self.training, **self.model, **self.task, "signature": self.signature}


EVOLVEGCN_O = MethodSettings(
    signature=256,
    training={"window": 1, "lr": 0.001, "epochs": 40, "patience": 12},
    model={"hidden": 64, "lift": False, "skip": True},
)
"""Equal for all data sets. Chosen by validation, with one seed, among signatures of 0, 32, 128 and 256 columns, one-hot
degrees, ``lift``, ``skip``, two layers, learning rates and windows."""

MAX_PAIRS: Mapping[str, int] = {"as733": 1_000}
"""Positives of a snapshot in an epoch, by data set: those of as733 have 12,000, which cost ten times as much."""


def evolvegcn_o(data: str) -> MethodSettings:
    """The settings for a data set."""
    if data not in MAX_PAIRS:
        return EVOLVEGCN_O
    return replace(EVOLVEGCN_O, task={"max_pairs": MAX_PAIRS[data]})
