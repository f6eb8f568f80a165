"""Cache of workload predictors of this machine: loaded from disk, or measured and fitted.

A predictor covers a range of widths of a model, and is specific to the model's other options, the hardware, the number
of threads and the versions.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

import strobe
from strobe.engine.inputs.model_choice import ModelChoice
from strobe.engine.machine import processor_name
from strobe.engine.progress import Progress
from strobe.errors import FormatError
from strobe.graph import DynamicGraph
from strobe.io.cache import Cache
from strobe.models import make_model
from strobe.ops import native
from strobe.placement.model_costs import LoadModel, count_load
from strobe.planner.time.chunks import ChunkBenchmark, ChunkRanges, cap_ranges, measure, sample_chunks
from strobe.planner.time.predictor import WorkloadPredictor, fit_predictor

KIND = "workload"
"""Kind of the cache's entries."""

MEASURE_S = 20.0
"""Default time limit of measurements; fitting takes about a sixth more."""

LEAST_S = 5.0
"""The least that a useful fit takes, all in all."""

_FIT_SHARE = 0.3
"""Part of a time limit that is left for fitting."""

MAX_CHUNKS = 400

VECTOR_COLUMNS = 16
"""Kernels process this many columns at a time and the remainder one by one, which is slower: only multiples are
comparable. A model of another width is measured with that width alone."""


def get_predictor(
    choice: ModelChoice,
    features: int,
    *,
    directed: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    threads: int | None = None,
    seconds: float = MEASURE_S,
    seed: int = 0,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> WorkloadPredictor:
    """Return the workload predictor of a model on this machine: load it from the cache, or measure and fit it.

    Args:
        choice: the model.
        features: per cell; a cached predictor must cover them and the model's hidden columns.
        directed: whether the graph is directed; some models do half the work on undirected graphs.
        device, dtype, threads: of a rank; ``threads`` defaults to torch's.
        seconds: time limit of the measurement.
        seed: of chunks and fit.
        cache: default: the user's.
        progress: receives the progress and the error of the fit.
    """
    with _torch_threads(threads):
        entry = _CacheEntry.of(choice, features, directed, torch.device(device), dtype, cache)
        subject, cached = entry.subject, entry.load()
        if cached is not None and cached.ranges.covers(features, subject.hidden):
            if progress is not None:
                progress.from_cache(KIND)
            return cached
        began = perf_counter()
        bench = ChunkBenchmark(make=subject.make, directed=directed, device=torch.device(device), dtype=dtype)
        predictor = _measure_and_fit(bench, subject, cached, seconds, seed, progress)
    if progress is not None:
        count, error = len(predictor.times), predictor.error
        progress.note(f"fitted the workload of {choice.name} to {count} chunks; error {error:.1%}")
    trouble = entry.save(predictor, perf_counter() - began)
    if progress is not None and trouble is not None:
        progress.note(trouble)
    return predictor


def get_predicted_loads(
    choice: ModelChoice,
    graph: DynamicGraph,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
    budget: Callable[[], float] = lambda: math.inf,
    cache: Cache | None = None,
) -> LoadModel:
    """Return the load model of a graph's cells for a model: predicted seconds, or counts if there is no predictor in
    the cache and measuring one would take longer than ``budget()`` seconds."""
    assert graph.features is not None  # every task adds features
    features, device = graph.features.shape[0], torch.device(device)
    entry = _CacheEntry.of(choice, features, graph.directed, device, dtype, cache)
    cached, hidden, seconds = entry.load(), entry.subject.hidden, MEASURE_S
    if cached is None or not cached.ranges.covers(features, hidden):
        available = budget()
        if available < LEAST_S:
            if progress is not None:
                progress.note(f"loads are counted: measuring {choice.name} would take over 5% of the run")
            return count_load
        seconds = min(MEASURE_S, (1 - _FIT_SHARE) * available)
    options: dict[str, Any] = {"directed": graph.directed, "device": device, "dtype": dtype, "seconds": seconds}
    return get_predictor(choice, features, progress=progress, cache=cache, **options).loads(features, hidden)


def hardware(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Identify the hardware and versions that determine the speed of this process."""
    kernels = native.library()
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "kernels": None if kernels is None else Path(kernels._name).name,
        "precision": str(dtype).removeprefix("torch."),
        "strobe": strobe.__version__,
        "torch": str(torch.__version__),
    }


@dataclass(frozen=True, kw_only=True)
class _MeasuredModel:
    """A model whose chunks are measured.

    ``hidden_multiple``: hidden columns are sampled as multiples of it; None: only the model's own number. ``module`` is
    a user's module; its predictor is not cached, because equality of modules cannot be decided.
    """

    name: str
    options: dict[str, Any]
    features: int
    hidden: int
    hidden_multiple: int | None
    module: nn.Module | None = None

    @classmethod
    def of(cls, choice: ModelChoice, features: int) -> _MeasuredModel:
        if choice.by_name and isinstance(choice.options.get("hidden"), int):
            options = {name: value for name, value in choice.options.items() if name != "hidden"}
            hidden, multiple = choice.options["hidden"], math.lcm(VECTOR_COLUMNS, int(options.get("heads", 1)))
            step = None if hidden % multiple else multiple
            return cls(name=choice.name, options=options, features=features, hidden=hidden, hidden_multiple=step)
        with torch.random.fork_rng():
            made = copy.deepcopy(choice.make(features))  # it may be the very module that will be trained
        width = made.width
        assert isinstance(width, int)  # the choice has seen to that
        return cls(name=choice.name, options={}, features=features, hidden=width, hidden_multiple=None, module=made)

    @property
    def is_cacheable(self) -> bool:
        return self.module is None

    def key(self) -> dict[str, Any]:
        """Identify the model, without the widths that are sampled."""
        return {
            "model": self.name,
            "options": self.options,
            "hidden": self.hidden if self.hidden_multiple is None else None,
        }

    def ranges(self, previous: WorkloadPredictor | None) -> ChunkRanges:
        """Ranges to sample: those of the previous predictor, extended to this model's widths."""
        if self.module is not None:
            return ChunkRanges().restrict_to(self.features, self.hidden)
        ranges = ChunkRanges() if previous is None else replace(ChunkRanges(), features=previous.ranges.features)
        if self.hidden_multiple is None:
            return replace(ranges, hidden=(self.hidden, self.hidden)).extend_to(self.features, self.hidden)
        hidden = ChunkRanges().hidden if previous is None else previous.ranges.hidden
        return replace(ranges, hidden=hidden).extend_to(self.features, self.hidden)

    def make(self, features: int, hidden: int) -> nn.Module:
        if self.module is not None:
            return self.module
        return make_model(self.name, features, hidden=hidden, **self.options)


@dataclass(frozen=True)
class _CacheEntry:
    """A model, and what its predictor must have been measured of."""

    subject: _MeasuredModel
    key: dict[str, Any]
    cache: Cache

    @classmethod
    def of(
        cls,
        choice: ModelChoice,
        features: int,
        directed: bool,
        device: torch.device,
        dtype: torch.dtype,
        cache: Cache | None = None,
    ) -> _CacheEntry:
        subject = _MeasuredModel.of(choice, features)
        key = subject.key() | hardware(device, dtype) | {"directed": directed}
        return cls(subject, key, Cache.of_user() if cache is None else cache)

    def load(self) -> WorkloadPredictor | None:
        """The cached predictor; None if it is missing or damaged."""
        arrays = self.cache.load(KIND, self.key) if self.subject.is_cacheable else None
        try:
            return None if arrays is None else WorkloadPredictor.from_arrays(arrays)
        except FormatError:
            return None

    def save(self, predictor: WorkloadPredictor, seconds: float) -> str | None:
        """Save a predictor that took ``seconds``; returns why it could not be saved."""
        if not self.subject.is_cacheable:
            return None
        return self.cache.save(KIND, self.key, predictor.to_arrays(), subject=self.subject.name, seconds=seconds)


def _measure_and_fit(
    bench: ChunkBenchmark,
    subject: _MeasuredModel,
    previous: WorkloadPredictor | None,
    seconds: float,
    seed: int,
    progress: Progress | None,
) -> WorkloadPredictor:
    on_stage = None if progress is None else progress.stage
    multiple_of = subject.hidden_multiple or subject.hidden
    wanted = subject.ranges(previous)
    ranges = cap_ranges(bench, wanted, next(sample_chunks(wanted, seed=seed, multiple_of=multiple_of)))
    chunks = islice(sample_chunks(ranges, seed=seed, multiple_of=multiple_of), MAX_CHUNKS)
    times = measure(bench, chunks, seconds=seconds, on_stage=on_stage)
    if on_stage is not None:
        on_stage("fitting seconds of chunks", 0, None)
    return fit_predictor(times, ranges, seed=seed)


@contextmanager
def _torch_threads(wanted: int | None) -> Iterator[None]:
    """Set the number of torch threads inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(wanted or threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
