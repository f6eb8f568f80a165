"""What came of a run that learnt while snapshots arrived: how well each was predicted before it was learnt from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strobe.engine.checkpoint import Weights
from strobe.engine.online_svg import online_svg
from strobe.engine.summary import duration, figure
from strobe.numbers import number_of, percent
from strobe.tasks.base import Metrics


@dataclass(frozen=True, kw_only=True)
class Watched:
    """``history`` has a line for each snapshot that was learnt from; ``weights`` are the latest."""

    path: Path
    graph: str
    model: str
    task: str
    metric: str
    higher_is_better: bool
    history: Sequence[Mapping[str, Any]]
    weights: Weights

    @property
    def judged(self) -> list[Mapping[str, Any]]:
        """The lines of snapshots that were judged before they were learnt from, and of which something was asked."""
        return [line for line in self.history if line.get("validation", {}).get(self.metric) is not None]

    @property
    def metrics(self) -> Metrics:
        """The mean over all snapshots that were judged, each as much as any other."""
        return _means(line["validation"] for line in self.judged)

    @property
    def baselines(self) -> dict[str, Metrics]:
        """The same of answers that need no learning, by name."""
        names = {name for line in self.judged for name in line["baselines"]}
        return {name: _means(line["baselines"].get(name, {}) for line in self.judged) for name in sorted(names)}

    def to_json(self) -> dict[str, Any]:
        """What ``result.json`` keeps."""
        return {
            "run": str(self.path),
            "graph": self.graph,
            "model": self.model,
            "task": self.task,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "epochs": len(self.history),
            "best_epoch": len(self.history),
            "judged": len(self.judged),
            "validation": self.metrics,
            "test": {},
            "baselines": {"validation": self.baselines},
            "seconds": round(sum(line["train_s"] + line["evaluate_s"] for line in self.history), 3),
        }

    def summary(self) -> str:
        """What came out, in a few lines for people."""
        seconds = sum(line["train_s"] + line["evaluate_s"] for line in self.history)
        lines = [
            f"{self.model} on {self.graph}, {self.task}: learnt from {number_of(len(self.history), 'snapshot')}, "
            f"judged on {len(self.judged)} before it, in {duration(seconds)}"
        ]
        if not self.judged:
            return lines[0]
        rows = {self.model: self.metrics} | self.baselines
        names = list(self.metrics)
        width = max(len(name) for name in (*rows, "mean over snapshots"))
        lines += ["", "mean over snapshots".ljust(width) + "".join(f"{name:>10}" for name in names)]
        for name, row in rows.items():
            told = [figure(row[each]) if each in row else "" for each in names]
            lines.append(name.ljust(width) + "".join(f"{each:>10}" for each in told))
        better = [self._better(name, row) for name, row in self.baselines.items() if self.metric in row]
        return "\n".join([*lines, f"{self.metric}: {', '.join(better)}"] if better else lines)

    def _better(self, name: str, row: Metrics) -> str:
        mine, other = self.metrics[self.metric], row[self.metric]
        wins = mine > other if self.higher_is_better else mine < other
        share = abs(mine - other) / abs(other) if other else 0.0
        return f"{percent(share)} {'better' if wins else 'worse'} than {name}"

    def picture(self) -> str | None:
        """How well each snapshot was predicted, beside the best of the trivial answers (SVG)."""
        if not self.judged:
            return None
        named = {self.model: [line["validation"].get(self.metric) for line in self.judged]}
        for name in self.baselines:
            named[name] = [line["baselines"].get(name, {}).get(self.metric) for line in self.judged]
        times = [str(line["snapshot"]) for line in self.judged]
        better = "higher" if self.higher_is_better else "lower"
        title = f"{self.model} on {self.graph}: {self.metric} of each snapshot, before it was learnt from"
        return online_svg(times, named, title, f"{self.metric} ({better} is better)")


def _means(rows: Iterable[Metrics]) -> Metrics:
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}
