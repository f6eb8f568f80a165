"""Predictors of this machine: found where an earlier run has left them, or measured and learned.

One serves all widths of a model, for chunks of many widths are measured. It holds for the model's other options, the
hardware, the number of threads and the versions it was measured with, and for nothing else.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import strobe
from strobe.errors import FormatError
from strobe.graph import DynamicGraph
from strobe.models import make_model
from strobe.ops import native
from strobe.placement.work import Loads
from strobe.planner.chunk_times import Bench, affordable, measure
from strobe.planner.chunks import Ranges, draw
from strobe.planner.workload import Predictor, fit

if TYPE_CHECKING:
    from strobe.engine.choice import ModelChoice
    from strobe.engine.progress import Progress

MEASURE_S = 20.0
"""Seconds to measure in; about a sixth more goes into learning."""

MOST = 400
"""Chunks that are enough."""

VECTOR = 16
"""Kernels take so many columns at a time, and what is left over one by one, which takes longer than all others: only
multiples have anything to say about each other. A model of another width is measured with that width alone."""


def predictor(
    choice: ModelChoice,
    features: int,
    *,
    directed: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    threads: int | None = None,
    seconds: float = MEASURE_S,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Predictor:
    """What sets of cells cost a model here: as it was learned before, else learned now.

    Args:
        choice: the model.
        features: of a cell; with the model's hidden columns they decide whether what was learned before will do.
        directed: whether the graph's edges are; some models do half the work where they are not.
        device: that of a rank, as are the kind of numbers and the threads (torch's, where none are given).
        seconds: to measure in, if need be.
        folder: where predictors are kept; the user's cache where none is given.
        progress: hears how far it is, and how good what was learned is.
    """
    subject = _Subject.of(choice, features)
    with _threads(threads):
        key = subject.key() | hardware(torch.device(device), dtype) | {"directed": directed}
        path = (cache_dir() if folder is None else folder) / f"{choice.name}-{_digest(key)}.pt"
        found = _found(path, key) if subject.keeps else None
        if found is not None and found.ranges.cover(features, subject.hidden):
            return found
        bench = Bench(make=subject.make, directed=directed, device=torch.device(device), dtype=dtype)
        learned = _learn(bench, subject, found, seconds, seed, progress)
    if progress is not None:
        count = len(learned.times)
        progress.note(f"learned from {count} chunks what cells cost {choice.name}; error {learned.error:.1%}")
    if subject.keeps:
        _keep(learned, path, key, progress)
    return learned


def learned_loads(
    choice: ModelChoice,
    graph: DynamicGraph,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Loads:
    """What sets of a graph's cells cost a model, in seconds: the loads of a ``Work``."""
    assert graph.features is not None  # every task sees to that
    features = graph.features.shape[0]
    found = predictor(choice, features, directed=graph.directed, device=device, dtype=dtype, progress=progress)
    return found.loads(features, _Subject.of(choice, features).hidden)


def cache_dir() -> Path:
    """Where predictors are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("strobe")) / "workload"


def hardware(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """What decides how fast this process computes."""
    kernels = native.library()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "kernels": None if kernels is None else Path(kernels._name).name,
        "precision": str(dtype).removeprefix("torch."),
        "strobe": strobe.__version__,
        "torch": str(torch.__version__),
    }


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """A model whose chunks are measured: how to make it, and with which widths.

    ``step``: hidden columns are drawn as multiples of it; None measures the model's own number alone. ``made`` is a
    model that is none of Strobe's own. Nobody can say whether the next one is still the same, so what is learned of
    it is not kept.
    """

    name: str
    options: dict[str, Any]
    features: int
    hidden: int
    step: int | None
    made: nn.Module | None = None

    @classmethod
    def of(cls, choice: ModelChoice, features: int) -> _Subject:
        if choice.by_name and isinstance(choice.options.get("hidden"), int):
            options = {name: value for name, value in choice.options.items() if name != "hidden"}
            hidden, multiple = choice.options["hidden"], math.lcm(VECTOR, int(options.get("heads", 1)))
            step = None if hidden % multiple else multiple
            return cls(name=choice.name, options=options, features=features, hidden=hidden, step=step)
        with torch.random.fork_rng():
            made = copy.deepcopy(choice.make(features))  # it may be the very module that will be trained
        width = made.width
        assert isinstance(width, int)  # the choice has seen to that
        return cls(name=choice.name, options={}, features=features, hidden=width, step=None, made=made)

    @property
    def keeps(self) -> bool:
        return self.made is None

    def key(self) -> dict[str, Any]:
        """What of the model decides how long it takes, but for the widths that are drawn."""
        return {"model": self.name, "options": self.options, "hidden": self.hidden if self.step is None else None}

    def ranges(self, before: Predictor | None) -> Ranges:
        """What is drawn: what was before, and this model's widths."""
        if self.made is not None:
            return Ranges().only(self.features, self.hidden)
        ranges = Ranges() if before is None else replace(Ranges(), features=before.ranges.features)
        if self.step is None:
            return replace(ranges, hidden=(self.hidden, self.hidden)).with_widths(self.features, self.hidden)
        hidden = Ranges().hidden if before is None else before.ranges.hidden
        return replace(ranges, hidden=hidden).with_widths(self.features, self.hidden)

    def make(self, features: int, hidden: int) -> nn.Module:
        if self.made is not None:
            return self.made
        return make_model(self.name, features, hidden=hidden, **self.options)


def _learn(
    bench: Bench, subject: _Subject, before: Predictor | None, seconds: float, seed: int, progress: Progress | None
) -> Predictor:
    on_stage = None if progress is None else progress.stage
    multiple_of = subject.step or subject.hidden
    wanted = subject.ranges(before)
    ranges = affordable(bench, wanted, next(draw(wanted, seed=seed, multiple_of=multiple_of)))
    chunks = islice(draw(ranges, seed=seed, multiple_of=multiple_of), MOST)
    times = measure(bench, chunks, seconds=seconds, on_stage=on_stage)
    if on_stage is not None:
        on_stage("learning how long chunks take", 0, None)
    return fit(times, ranges, seed=seed)


def _found(path: Path, key: dict[str, Any]) -> Predictor | None:
    """What was kept; nothing where it is not there, or damaged: it can be made again."""
    try:
        return Predictor.load(path, key) if path.is_file() else None
    except FormatError:
        return None


def _keep(learned: Predictor, path: Path, key: dict[str, Any], progress: Progress | None) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        learned.save(path, key)
    except OSError as error:
        if progress is not None:
            progress.note(f"what was learned of chunks could not be kept for other runs: {error}")


@contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    """Torch with so many threads for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(wanted or threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _digest(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
