"""Predicted seconds of sets of cells, fitted to measured chunks (Chen et al. 2023, sections 4.2 and 6).

As in the paper, one MLP per stage has three hidden layers of 256 units with ReLU, trained by Adam on the mean absolute
percentage error. The paper trains on 50,000 chunks, here a few hundred noisy ones must do. Therefore inputs and outputs
are standardized logarithms, the network fits the residual of a linear fit, weights decay, and the learning rate follows
one cycle. 50 epochs instead of 100: with few chunks, more did not improve the held-out error (0.3 to 0.5 points worse
for three models).

An MLP is never evaluated outside the measured ranges:

- Larger sets cost in proportion to the largest measured chunk of equal shape.
- More arcs per cell or longer sequences are extrapolated linearly.
- Other widths raise an error; ``get_predictor`` measures again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.errors import FormatError, OptionError
from strobe.io.cache import Arrays, decode_json, encode_json
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CellSetSizes
from strobe.planner.time.chunks import REFERENCE_COLUMNS, ChunkRanges, ChunkTimes

HELD_OUT = 0.2
"""Fraction of the chunks that the error is computed on."""

REFERENCE_CELLS = 16_384
"""Smaller sets cost the marginal rate of a set of this size, because ranks compute small sets together."""

_MIN_S = 1e-7  # below the resolution of clocks

UNITS = 256
LAYERS = 3
EPOCHS = 50
BATCH = 16
LEARNING_RATE = 1e-3
DECAY = 3.0

_CHUNK_ROWS = 16_384  # of a prediction: there may be as many rows as cells


@dataclass(frozen=True, eq=False)
class MLP:
    """Predicts seconds from positive sizes, [I] each."""

    mean: FloatArray
    std: FloatArray
    line: FloatArray  # [I + 1], the last is the intercept
    net: nn.Sequential

    @torch.no_grad()
    def seconds(self, sizes: FloatArray) -> FloatArray:
        """Predict seconds [K] from sizes [K, I]."""
        scaled = (np.log(sizes) - self.mean) / self.std
        parts = [self.net(part) for part in torch.from_numpy(scaled).float().split(_CHUNK_ROWS)]
        residual = torch.cat(parts).squeeze(1).double().numpy()
        seconds: FloatArray = np.exp(scaled @ self.line[:-1] + self.line[-1] + residual)
        return seconds

    def to_arrays(self) -> Arrays:
        named = {name: getattr(self, name) for name in ("mean", "std", "line")}
        return named | {f"net.{name}": weight.numpy() for name, weight in self.net.state_dict().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> MLP:
        net = _net(len(arrays["mean"]))
        weights = {name: each for name, each in arrays.items() if name.startswith("net.")}
        net.load_state_dict({name.removeprefix("net."): torch.from_numpy(each) for name, each in weights.items()})
        return cls(arrays["mean"], arrays["std"], arrays["line"], net)


def fit_mlp(sizes: FloatArray, seconds: FloatArray, *, seed: int = 0, epochs: int = EPOCHS) -> MLP:
    """Fit sizes [M, I] to seconds [M]; deterministic for a seed."""
    logs = np.log(sizes)
    mean, std = logs.mean(0), logs.std(0)
    std = np.where(std > 1e-6, std, 1.0)
    scaled = (logs - mean) / std
    line = _fit_line(scaled, np.log(seconds))
    residual = np.log(seconds) - scaled @ line[:-1] - line[-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([]), torch.enable_grad():
            torch.manual_seed(seed)
            net = _net(sizes.shape[1])
            _train(net, torch.from_numpy(scaled).float(), torch.from_numpy(residual).float(), epochs)
    finally:
        torch.set_num_threads(threads)
    return MLP(mean, std, line, net)


def _net(inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(inputs, UNITS), nn.ReLU()]
        inputs = UNITS
    last = nn.Linear(UNITS, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def _fit_line(scaled: FloatArray, logs: FloatArray) -> FloatArray:
    """Fit a line by least squares; a constant column has slope 0."""
    with_one = np.hstack([scaled, np.ones((len(scaled), 1))])
    line: FloatArray = np.linalg.lstsq(with_one, logs, rcond=None)[0]
    return line


def _train(net: nn.Sequential, x: Tensor, y: Tensor, epochs: int) -> None:
    batches = math.ceil(len(x) / BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=DECAY)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).chunk(batches):
            optimizer.zero_grad()
            # Relative error of exp(prediction) to exp(y).
            torch.expm1(net(x[batch]).squeeze(1) - y[batch]).abs().mean().backward()
            optimizer.step()
            scheduler.step()


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkloadPredictor:
    """The fitted MLPs of both stages, with the measurements.

    ``time`` is None for a model whose stages cannot be separated. ``held_out`` are indices of held-out chunks.
    """

    structure: MLP
    time: MLP | None
    ranges: ChunkRanges
    times: ChunkTimes
    held_out: IntArray

    @property
    def error(self) -> float:
        """Mean absolute percentage error of whole passes over the held-out chunks."""
        return self.errors["total"]

    @property
    def errors(self) -> dict[str, float]:
        """Errors of whole passes (``total``) and of each stage."""
        chunks = self.times.select(self.held_out)
        structure, time = self.predict_stages(chunks.sizes, chunks.features, chunks.hidden, alone=True)
        pairs = {"total": (structure + time, chunks.total), "structure": (structure, chunks.structure)}
        pairs |= {} if self.time is None else {"time": (time, chunks.time)}
        return {name: percentage_error(predicted, true) for name, (predicted, true) in pairs.items()}

    def loads(self, features: int, hidden: int, *, alone: bool = False) -> PredictedLoads:
        """Return the load model of a model with these widths, in seconds.

        A rank computes many sets in one pass, so small sets are charged without the fixed cost of a pass, unless
        ``alone``.

        Raises:
            OptionError: the widths were not measured.
        """
        if not self.ranges.covers(features, hidden):
            measured = _format_range(self.ranges.features), _format_range(self.ranges.hidden)
            raise OptionError(
                f"chunks were measured with {measured[0]} features and {measured[1]} hidden columns, not with "
                f"{features} and {hidden}: use strobe.planner.get_predictor for these"
            )
        return PredictedLoads(self, features, hidden, alone)

    def predict_stages(
        self, sizes: CellSetSizes, features: int | IntArray, hidden: int | IntArray, *, alone: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the seconds of the structure and the time stage, [K] each; 0 for empty sets."""
        structure, time = np.zeros(len(sizes)), np.zeros(len(sizes))
        nonempty = np.flatnonzero(sizes.cells)
        widths = tuple(
            np.broadcast_to(np.asarray(each, np.float64), len(sizes))[nonempty] for each in (features, hidden)
        )
        cells, arcs, sequences = (each[nonempty] for each in _arrays(sizes))
        structure[nonempty] = self._structure(cells, arcs, *widths, alone=alone)
        if self.time is not None:
            time[nonempty] = self._time(self.time, cells, sequences, *widths, alone=alone)
        return structure, time

    def _structure(
        self, cells: FloatArray, arcs: FloatArray, features: FloatArray, hidden: FloatArray, *, alone: bool
    ) -> FloatArray:
        degree = np.maximum(arcs / cells, self.ranges.arcs_per_cell[0])  # fewer are negligible
        seen = np.minimum(degree, self.ranges.arcs_per_cell[1])
        size, times = self._reference_size(cells, hidden, seen, alone=alone)

        def seconds(degree: FloatArray) -> FloatArray:
            return self.structure.seconds(_structure_inputs(size, size * degree, features, hidden))

        return times * _extrapolate_linearly(seconds, seen, degree)

    def _time(
        self,
        mlp: MLP,
        cells: FloatArray,
        sequences: FloatArray,
        features: FloatArray,
        hidden: FloatArray,
        *,
        alone: bool,
    ) -> FloatArray:
        length = np.maximum(cells / np.maximum(sequences, 1), self.ranges.length[0])
        seen = np.minimum(length, self.ranges.length[1])
        size, times = self._reference_size(cells, hidden, np.zeros_like(cells), alone=alone)

        def seconds(length: FloatArray) -> FloatArray:
            return mlp.seconds(_time_inputs(size, size / length, features, hidden))

        return times * _extrapolate_linearly(seconds, seen, length)

    def _reference_size(
        self, cells: FloatArray, hidden: FloatArray, degree: FloatArray, *, alone: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Return the cells of the measured chunk that a set is compared with, and the factor of its cost, [K] each."""
        least, (most_cells, most_arcs) = self.ranges.cells[0], self.ranges.max_sizes(hidden)
        with np.errstate(divide="ignore"):
            most = np.maximum(np.minimum(most_cells, most_arcs / degree), least)
        size = np.clip(cells, least if alone else np.minimum(REFERENCE_CELLS, most), most)
        return size, np.maximum(cells / size, 1.0) if alone else cells / size

    def to_arrays(self) -> Arrays:
        """Arrays by name, for ``from_arrays``."""
        stages = {"structure": self.structure} | ({} if self.time is None else {"time": self.time})
        nets = {f"{stage}.{name}": array for stage, mlp in stages.items() for name, array in mlp.to_arrays().items()}
        times = {f"times.{name}": array for name, array in self.times.arrays().items()}
        return {**encode_json(asdict(self.ranges)), **nets, **times, "held_out": self.held_out}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> WorkloadPredictor:
        """Make a predictor from the result of ``to_arrays``.

        Raises:
            FormatError: the arrays are of something else.
        """

        def part(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}

        try:
            return cls(
                structure=MLP.from_arrays(part("structure.")),
                time=MLP.from_arrays(part("time.")) if part("time.") else None,
                ranges=ChunkRanges(**{name: _as_bounds(value) for name, value in decode_json(arrays).items()}),
                times=ChunkTimes(**part("times.")),
                held_out=arrays["held_out"],
            )
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            raise FormatError(f"these are not the arrays of a workload predictor: {error}") from error


def _as_bounds(value: Any) -> Any:
    """A range as ``ChunkRanges`` has it; JSON knows no tuples."""
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, eq=False)
class PredictedLoads:
    """A load model: a predictor with fixed widths."""

    predictor: WorkloadPredictor
    features: int
    hidden: int
    alone: bool

    def __call__(self, sizes: CellSetSizes) -> FloatArray:
        structure, time = self.predictor.predict_stages(sizes, self.features, self.hidden, alone=self.alone)
        return structure + time


def fit_predictor(times: ChunkTimes, ranges: ChunkRanges | None = None, *, seed: int = 0) -> WorkloadPredictor:
    """Fit a predictor to measured chunks; deterministic for a seed.

    Args:
        times: the measurements.
        ranges: that the chunks were sampled from; default: the measured ranges.
        seed: of the held-out chunks and the MLPs.

    Raises:
        OptionError: fewer than 5 chunks.
    """
    if len(times) < 5:
        raise OptionError(f"{len(times)} chunks are too few to fit and to hold some out: measure 5 or more")
    order = np.random.default_rng(seed).permutation(len(times))
    held_out = max(1, round(HELD_OUT * len(times)))
    training = times.select(order[held_out:])
    cells, arcs, sequences, features, hidden = (
        array.astype(np.float64) for array in (*_arrays(training.sizes), training.features, training.hidden)
    )
    structure = _structure_inputs(cells, np.maximum(arcs, 1), features, hidden)
    both = bool(times.time.any())
    return WorkloadPredictor(
        structure=fit_mlp(structure, np.maximum(training.structure, _MIN_S), seed=seed),
        time=fit_mlp(_time_inputs(cells, sequences, features, hidden), np.maximum(training.time, _MIN_S), seed=seed)
        if both
        else None,
        ranges=_measured_ranges(times) if ranges is None else ranges,
        times=times,
        held_out=np.sort(order[:held_out]),
    )


def percentage_error(predicted: FloatArray, true: FloatArray) -> float:
    """Compute the mean absolute percentage error, as a fraction."""
    return float(np.abs(predicted / np.maximum(true, _MIN_S) - 1).mean())


def _extrapolate_linearly(
    seconds: Callable[[FloatArray], FloatArray], seen: FloatArray, target: FloatArray
) -> FloatArray:
    """Extrapolate from ``seen`` to ``target`` with the non-negative slope between half of ``seen`` and ``seen``."""
    at = seconds(seen)
    beyond = target / seen - 1
    return at + 2 * beyond * np.maximum(at - seconds(seen / 2), 0.0) if beyond.any() else at


def _structure_inputs(cells: FloatArray, arcs: FloatArray, features: FloatArray, hidden: FloatArray) -> FloatArray:
    return np.stack([cells, arcs, features, hidden], 1)


def _time_inputs(cells: FloatArray, sequences: FloatArray, features: FloatArray, hidden: FloatArray) -> FloatArray:
    return np.stack([cells, sequences, cells / sequences, features, hidden], 1)


def _arrays(sizes: CellSetSizes) -> tuple[FloatArray, FloatArray, FloatArray]:
    cells, arcs, sequences = (np.asarray(each, np.float64) for each in (sizes.cells, sizes.arcs, sizes.sequences))
    return cells, arcs, sequences


def _measured_ranges(times: ChunkTimes) -> ChunkRanges:
    """Ranges of the measurements."""
    wide = np.maximum(times.hidden / REFERENCE_COLUMNS, 1.0)
    return ChunkRanges(
        cells=(float(times.cells.min()), float((times.cells * wide).max())),
        arcs=float((times.arcs * wide).max()),
        arcs_per_cell=_span(times.arcs / times.cells),
        length=_span(times.cells / times.sequences),
        features=_span(times.features),
        hidden=_span(times.hidden),
    )


def _span(values: Any) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _format_range(span: tuple[float, float]) -> str:
    low, high = (f"{end:g}" for end in span)
    return low if low == high else f"{low} to {high}"
