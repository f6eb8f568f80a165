"""What came of a run that learnt while snapshots arrived: how well each was predicted before it was learnt from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strobe.engine.checkpoint import Weights
from strobe.engine.online_svg import online_svg
from strobe.engine.summary import duration, score_table, verdict
from strobe.numbers import number_of
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
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of the source: ``rows`` in all, ``late_rows`` and ``bad_rows``, which are left out."""

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
            "source": dict(self.rows),
            "seconds": round(sum(line["train_s"] + line["evaluate_s"] for line in self.history), 3),
        }

    def summary(self) -> str:
        """What came out, in a few lines for people."""
        seconds = sum(line["train_s"] + line["evaluate_s"] for line in self.history)
        lines = [
            f"{self.model} on {self.graph}, {self.task}: learnt from {number_of(len(self.history), 'snapshot')}, "
            f"judged on {len(self.judged)} before it, in {duration(seconds)}"
        ]
        late, bad = self.rows.get("late_rows", 0), self.rows.get("bad_rows", 0)
        lines += [f"left out {number_of(late, 'row')} that came too late"] if late else []
        lines += [f"left out {number_of(bad, 'bad row')}"] if bad else []
        if not self.judged:
            return "\n".join(lines)
        lines += ["", *score_table("mean over snapshots", self.model, self.metrics, self.baselines)]
        said = verdict(self.metrics, self.baselines, self.metric, self.higher_is_better)
        return "\n".join([*lines, *([said] if said else [])])

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
