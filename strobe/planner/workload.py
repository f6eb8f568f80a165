"""What sets of cells will cost, learned from chunks that ran on this machine (Chen et al. 2023, sections 4.2 and 6).

Two networks, one for each stage. What they are asked about but have not seen is never left to them:

- Chunks larger than all that were measured cost in proportion: twice the cells, arcs and sequences, twice the time.
- More arcs a cell, or longer sequences, than were measured go on in a straight line from the most that was.
- Other widths than those between which chunks were drawn are refused: ``predictor`` measures again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from strobe.errors import FormatError, OptionError
from strobe.io.atomic import write_whole
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.work import Sizes
from strobe.planner.chunk_times import Times
from strobe.planner.chunks import COLUMNS, Ranges
from strobe.planner.mlp import Mlp, fit_mlp

HELD_OUT = 0.2
"""The part of the chunks that is never learned from: the error is theirs."""

TOGETHER = 16_384
"""A set of fewer cells is priced as a part of one of so many, unless it runs alone."""

_LEAST_S = 1e-7  # below what a clock tells


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictor:
    """Both networks, what they have learned from, and how wrong they are about what they have not.

    ``time`` is None for a model whose stages cannot be told apart. ``held_out`` are the numbers of the chunks that
    were kept from both.
    """

    structure: Mlp
    time: Mlp | None
    ranges: Ranges
    times: Times
    held_out: IntArray

    @property
    def error(self) -> float:
        """The mean absolute percentage error of whole passes, both stages, over the chunks held out."""
        return self.errors["whole"]

    @property
    def errors(self) -> dict[str, float]:
        """The same of each stage, too."""
        chunks = self.times.take(self.held_out)
        structure, time = self.stages(chunks.sizes, chunks.features, chunks.hidden, alone=True)
        told = {"whole": (structure + time, chunks.whole), "structure": (structure, chunks.structure)}
        told |= {} if self.time is None else {"time": (time, chunks.time)}
        return {name: percentage_error(said, true) for name, (said, true) in told.items()}

    def loads(self, features: int, hidden: int, *, alone: bool = False) -> Priced:
        """What sets of cells cost a model of these widths, in seconds: the loads of a ``Work``.

        Sets share a pass with others on their rank, so what a pass costs whatever it computes is not theirs: small
        ones are priced as parts of a larger set like them. With ``alone`` each has a pass for itself.
        """
        if not self.ranges.cover(features, hidden):
            raise OptionError(
                f"chunks were measured with {_said(self.ranges.features)} features and {_said(self.ranges.hidden)} "
                f"hidden columns, not with {features} and {hidden}: ask strobe.planner.predictor for these"
            )
        return Priced(self, features, hidden, alone)

    def stages(
        self, sizes: Sizes, features: int | IntArray, hidden: int | IntArray, *, alone: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of the structure stage and of the time stage, [K] each; 0 for sets without cells."""
        structure, time = np.zeros(len(sizes)), np.zeros(len(sizes))
        there = np.flatnonzero(sizes.cells)
        widths = tuple(np.broadcast_to(np.asarray(each, np.float64), len(sizes))[there] for each in (features, hidden))
        cells, arcs, sequences = (each[there] for each in _arrays(sizes))
        structure[there] = self._structure(cells, arcs, *widths, alone=alone)
        if self.time is not None:
            time[there] = self._time(self.time, cells, sequences, *widths, alone=alone)
        return structure, time

    def _structure(
        self, cells: FloatArray, arcs: FloatArray, features: FloatArray, hidden: FloatArray, *, alone: bool
    ) -> FloatArray:
        degree = np.maximum(arcs / cells, self.ranges.arcs_per_cell[0])  # fewer cost nothing beside the cells
        seen = np.minimum(degree, self.ranges.arcs_per_cell[1])
        size, times = self._sized(cells, hidden, seen, alone=alone)

        def seconds(degree: FloatArray) -> FloatArray:
            return self.structure.seconds(_structure_inputs(size, size * degree, features, hidden))

        return times * _straight_on(seconds, seen, degree)

    def _time(
        self,
        mlp: Mlp,
        cells: FloatArray,
        sequences: FloatArray,
        features: FloatArray,
        hidden: FloatArray,
        *,
        alone: bool,
    ) -> FloatArray:
        length = np.maximum(cells / np.maximum(sequences, 1), self.ranges.length[0])
        seen = np.minimum(length, self.ranges.length[1])
        size, times = self._sized(cells, hidden, np.zeros_like(cells), alone=alone)

        def seconds(length: FloatArray) -> FloatArray:
            return mlp.seconds(_time_inputs(size, size / length, features, hidden))

        return times * _straight_on(seconds, seen, length)

    def _sized(
        self, cells: FloatArray, hidden: FloatArray, degree: FloatArray, *, alone: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Cells of the measured chunk that tells what a set costs, and how many times that is, [K] each."""
        least, (most_cells, most_arcs) = self.ranges.cells[0], self.ranges.most(hidden)
        with np.errstate(divide="ignore"):
            most = np.maximum(np.minimum(most_cells, most_arcs / degree), least)
        size = np.clip(cells, least if alone else np.minimum(TOGETHER, most), most)
        return size, np.maximum(cells / size, 1.0) if alone else cells / size

    def save(self, path: Path, key: dict[str, Any]) -> None:
        """Writes all of it, with what it holds for."""
        state = {
            "key": key,
            "structure": self.structure.state(),
            "time": None if self.time is None else self.time.state(),
            "ranges": asdict(self.ranges),
            "times": {name: torch.from_numpy(array) for name, array in self.times.arrays().items()},
            "held_out": torch.from_numpy(self.held_out),
        }
        write_whole(path, lambda file: torch.save(state, file))

    @classmethod
    def load(cls, path: Path, key: dict[str, Any]) -> Predictor:
        """Reads what was saved for this key; anything else in the file is an error."""
        try:
            state = torch.load(path, weights_only=True)
            if state["key"] != key:
                raise FormatError(f"{path} holds for something else: {state['key']}, not {key}")
            return cls(
                structure=Mlp.from_state(state["structure"]),
                time=None if state["time"] is None else Mlp.from_state(state["time"]),
                ranges=Ranges(**state["ranges"]),
                times=Times(**{name: array.numpy() for name, array in state["times"].items()}),
                held_out=state["held_out"].numpy(),
            )
        except (OSError, EOFError, pickle.UnpicklingError, RuntimeError, LookupError, TypeError, ValueError) as error:
            raise FormatError(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True, eq=False)
class Priced:
    """A predictor for one pair of widths: the loads of a ``Work``."""

    by: Predictor
    features: int
    hidden: int
    alone: bool

    def __call__(self, sizes: Sizes) -> FloatArray:
        structure, time = self.by.stages(sizes, self.features, self.hidden, alone=self.alone)
        return structure + time


def fit(times: Times, ranges: Ranges | None = None, *, seed: int = 0) -> Predictor:
    """Learns from measured chunks; the same for the same measurements and seed.

    ``ranges`` are those they were drawn from; else what was measured counts.
    """
    if len(times) < 5:
        raise OptionError(f"{len(times)} chunks are too few to learn from and to hold some out: measure 5 or more")
    order = np.random.default_rng(seed).permutation(len(times))
    held_out = max(1, round(HELD_OUT * len(times)))
    learned = times.take(order[held_out:])
    cells, arcs, sequences, features, hidden = (
        array.astype(np.float64) for array in (*_arrays(learned.sizes), learned.features, learned.hidden)
    )
    structure = _structure_inputs(cells, np.maximum(arcs, 1), features, hidden)
    both = bool(times.time.any())
    return Predictor(
        structure=fit_mlp(structure, np.maximum(learned.structure, _LEAST_S), seed=seed),
        time=fit_mlp(_time_inputs(cells, sequences, features, hidden), np.maximum(learned.time, _LEAST_S), seed=seed)
        if both
        else None,
        ranges=_ranges_of(times) if ranges is None else ranges,
        times=times,
        held_out=np.sort(order[:held_out]),
    )


def percentage_error(said: FloatArray, true: FloatArray) -> float:
    """The mean absolute percentage error, as a part of 1."""
    return float(np.abs(said / np.maximum(true, _LEAST_S) - 1).mean())


def _straight_on(seconds: Callable[[FloatArray], FloatArray], seen: FloatArray, asked: FloatArray) -> FloatArray:
    """What ``seen`` takes, and beyond it on in the direction from half of it; never down."""
    at = seconds(seen)
    beyond = asked / seen - 1
    return at + 2 * beyond * np.maximum(at - seconds(seen / 2), 0.0) if beyond.any() else at


def _structure_inputs(cells: FloatArray, arcs: FloatArray, features: FloatArray, hidden: FloatArray) -> FloatArray:
    return np.stack([cells, arcs, features, hidden], 1)


def _time_inputs(cells: FloatArray, sequences: FloatArray, features: FloatArray, hidden: FloatArray) -> FloatArray:
    return np.stack([cells, sequences, cells / sequences, features, hidden], 1)


def _arrays(sizes: Sizes) -> tuple[FloatArray, FloatArray, FloatArray]:
    cells, arcs, sequences = (np.asarray(each, np.float64) for each in (sizes.cells, sizes.arcs, sizes.sequences))
    return cells, arcs, sequences


def _ranges_of(times: Times) -> Ranges:
    """What was measured, from the least to the most of each."""
    wide = np.maximum(times.hidden / COLUMNS, 1.0)
    return Ranges(
        cells=(float(times.cells.min()), float((times.cells * wide).max())),
        arcs=float((times.arcs * wide).max()),
        arcs_per_cell=_span(times.arcs / times.cells),
        length=_span(times.cells / times.sequences),
        features=_span(times.features),
        hidden=_span(times.hidden),
    )


def _span(values: Any) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _said(span: tuple[float, float]) -> str:
    low, high = (f"{end:g}" for end in span)
    return low if low == high else f"{low} to {high}"
