"""The result of online training: metrics of each snapshot, evaluated before training on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strobe.engine.checkpoint.store import Weights
from strobe.engine.services import Services
from strobe.tasks.base import Metrics


@dataclass(frozen=True, kw_only=True)
class OnlineResult:
    """``history`` has a line per trained snapshot; ``weights`` are the latest. ``path``: the run directory, if any."""

    path: Path | None
    graph: str
    model: str
    task: str
    metric: str
    higher_is_better: bool
    history: Sequence[Mapping[str, Any]]
    weights: Weights
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of the source: ``rows`` in all, ``late_rows`` and ``bad_rows``, which are left out."""
    services: Services = field(default_factory=Services, repr=False, compare=False)

    @property
    def evaluated(self) -> list[Mapping[str, Any]]:
        """Lines of snapshots that were evaluated before training on them and have examples."""
        return [line for line in self.history if line.get("validation", {}).get(self.metric) is not None]

    @property
    def metrics(self) -> Metrics:
        """Means over all evaluated snapshots."""
        return _means(line["validation"] for line in self.evaluated)

    @property
    def baselines(self) -> dict[str, Metrics]:
        """The same of answers that need no learning, by name."""
        names = {name for line in self.evaluated for name in line["baselines"]}
        return {name: _means(line["baselines"].get(name, {}) for line in self.evaluated) for name in sorted(names)}

    def to_json(self) -> dict[str, Any]:
        """The contents of ``result.json``."""
        return {
            "run": None if self.path is None else str(self.path),
            "graph": self.graph,
            "model": self.model,
            "task": self.task,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "epochs": len(self.history),
            "best_epoch": len(self.history),
            "evaluated": len(self.evaluated),
            "validation": self.metrics,
            "test": {},
            "baselines": {"validation": self.baselines},
            "source": dict(self.rows),
            "seconds": round(sum(line["train_s"] + line["evaluate_s"] for line in self.history), 3),
        }

    def summary(self) -> str:
        """The result as text."""
        return self.services.online_summary(self)

    def chart(self) -> str | None:
        """The metric of each snapshot next to that of the best baseline (SVG)."""
        return self.services.online_chart(self)


def _means(rows: Iterable[Metrics]) -> Metrics:
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}
