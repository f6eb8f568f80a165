"""What a node carries: values given per node, values given per cell, and values derived from the edges.

Features and labels are both *carriers*: something that gives one row per cell of a snapshot. Given ones
hold an array; derived ones hold a recipe, cost nothing on disk, and are computed when a snapshot is read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from strobe.errors import FormatError, InputError
from strobe.graph.arrays import Array as Array  # a carrier's rows; part of this module's surface
from strobe.graph.arrays import as_array, is_mapped, read_only
from strobe.graph.fields import MAX_WIDTH
from strobe.ops.csr import IntArray

if TYPE_CHECKING:
    from strobe.graph.dynamic import DynamicGraph
    from strobe.graph.snapshot import Snapshot


class Carrier(ABC):
    """Gives the rows of a snapshot's cells, in the order of its nodes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one cell's value: (F,) for F features, () for one label."""

    @abstractmethod
    def rows(self, snapshot: Snapshot) -> Array:
        """The values of the snapshot's cells, [n_t, *shape]."""

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """What JSON needs to rebuild this carrier; arrays are stored beside it, not in it."""


@dataclass(frozen=True, eq=False)
class Given(Carrier):
    """A carrier that holds an array."""

    values: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _rows_of_numbers(self.values))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[1:])

    @property
    def num_rows(self) -> int:
        return len(self.values)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * int(self.values.dtype.itemsize)

    @property
    def mapped(self) -> bool:
        """Whether the values are in a file, read page by page."""
        return is_mapped(self.values)


@dataclass(frozen=True, eq=False)
class Static(Given):
    """One value per node for all time, [N, …]. Reading a snapshot copies the rows of its nodes."""

    def rows(self, snapshot: Snapshot) -> Array:
        if snapshot.has_all_nodes:
            return self.values
        return self.values[snapshot.nodes]

    def recipe(self) -> dict[str, Any]:
        return {"kind": "static"}


@dataclass(frozen=True, eq=False)
class PerCell(Given):
    """One value per cell, [C, …], t-major. Reading a snapshot is a view."""

    def rows(self, snapshot: Snapshot) -> Array:
        return self.values[snapshot.stored_cells]

    def recipe(self) -> dict[str, Any]:
        return {"kind": "per_cell"}


@dataclass(frozen=True, eq=False)
class BySnapshot(PerCell):
    """Values per cell that something else gives, snapshot by snapshot; ``values`` has none of them, only their type."""

    cell_ptr: IntArray

    @abstractmethod
    def at(self, t: int) -> Array:
        """The rows of all cells of stored snapshot t."""

    @property
    def num_rows(self) -> int:
        return int(self.cell_ptr[-1])

    def rows(self, snapshot: Snapshot) -> Array:
        if not snapshot.num_nodes:
            return self.values
        cells = snapshot.stored_cells
        first = cells.start if isinstance(cells, slice) else int(cells[0])
        t = int(np.searchsorted(self.cell_ptr, first, side="right")) - 1
        rows = self.at(t)
        return rows if isinstance(cells, slice) else rows[cells - self.cell_ptr[t]]


@dataclass(frozen=True)
class Degrees(Carrier):
    """In-degree and out-degree of every cell, optionally as log(1 + degree), float32 [n_t, 2].

    Parallel edges count each, edge weights do not; in an undirected graph both columns are equal.
    """

    log: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (2,)

    def rows(self, snapshot: Snapshot) -> Array:
        return self.changed(snapshot, lambda rows: rows)

    def changed(self, snapshot: Snapshot, change: Callable[[Array], Array]) -> Array:
        """What becomes of the rows if each is changed by itself: that is done once for every degree there is."""
        from strobe.ops.degrees import largest, looked_up  # loads numba, which who only opens a graph does not need

        degree = np.arange(largest(snapshot.row_ptr, snapshot.out_degree) + 1)
        table = np.stack([degree, degree], axis=1).astype(np.float32)
        return looked_up(snapshot.row_ptr, snapshot.out_degree, change(np.log1p(table) if self.log else table))

    def recipe(self) -> dict[str, Any]:
        return {"kind": "degrees", "log": bool(self.log)}


@dataclass(frozen=True)
class Signature(Carrier):
    """Pseudo-random numbers of -1 or 1 that tell nodes apart, float32 [n_t, width].

    A node has the same ones at all times, in all views and on every machine; none are stored. Signatures of two
    nodes are nearly orthogonal, so that a sum over neighbours is a random projection of who they are: its product
    with a node's signature says whether it is one of them, that of two sums how many neighbours are shared. They
    have mean 0 and deviation 1 as they are.
    """

    width: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_WIDTH:
            raise InputError(f"a signature has from 1 to {MAX_WIDTH:,} numbers, not {self.width}")
        if not 0 <= self.seed < 1 << 64:
            raise InputError(f"the seed of signatures must be from 0 to 2^64 - 1, not {self.seed}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    def rows(self, snapshot: Snapshot) -> Array:
        # One hash gives 64 signs. Its counter is (node, word); the seed is hashed first, so that neighbouring seeds
        # do not give the same signatures to neighbouring nodes.
        words = -(-self.width // 64)
        counter = snapshot.nodes.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(words, dtype=np.uint64)
        hashed = _mixed(counter ^ _mixed(np.array([self.seed], np.uint64)))
        columns = np.arange(self.width)
        bits = (hashed[:, columns // 64] >> (columns % 64).astype(np.uint64)) & np.uint64(1)
        signs: Array = bits.astype(np.float32) * 2 - 1
        return signs

    def recipe(self) -> dict[str, Any]:
        return {"kind": "signature", "width": int(self.width), "seed": int(self.seed)}


@dataclass(frozen=True)
class Beside(Carrier):
    """Rows of several carriers side by side. At most one of them holds an array."""

    parts: tuple[Carrier, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            _refuse_scalars(part, "put beside others")
        holding = [part for part in self.parts if given(part) is not None]
        if len(holding) > 1:
            raise InputError(f"{len(holding)} carriers with arrays cannot stand side by side: join their arrays first")
        if not self.parts:
            raise InputError("nothing to put side by side")

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts),)

    def rows(self, snapshot: Snapshot) -> Array:
        joined: Array = np.concatenate([part.rows(snapshot) for part in self.parts], axis=1)
        return joined

    def recipe(self) -> dict[str, Any]:
        return {"kind": "beside", "parts": [part.recipe() for part in self.parts]}


@dataclass(frozen=True)
class Standardised(Carrier):
    """Another carrier shifted and scaled by fixed numbers, column by column, float32.

    The numbers are part of the value, so they can come from training snapshots alone:
    ``Standardised.fit(Degrees(log=True), graph[:40])``.
    """

    of: Carrier
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        _refuse_scalars(self.of)
        if not len(self.mean) == len(self.std) == self.of.shape[0]:
            raise InputError(f"{len(self.mean)} means and {len(self.std)} deviations for {self.of.shape[0]} features")
        for column, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
                raise InputError(f"feature {column} cannot be standardised by mean {mean} and deviation {std}")

    @classmethod
    def fit(cls, of: Carrier, graph: DynamicGraph) -> Standardised:
        """Mean and standard deviation over all cells of ``graph``; a constant column gets std 1."""
        _refuse_scalars(of)
        from strobe.ops.threads import each_in_order  # loads torch, which who only reads a graph does not need

        count, mean, squares = 0, np.zeros(of.shape), np.zeros(of.shape)
        low, high = np.full(of.shape, np.inf), np.full(of.shape, -np.inf)
        for found in each_in_order(lambda t: _Moments.of(of, graph[t]), len(graph)):
            if not found.rows:
                continue
            # Squares about the mean of each snapshot, joined as Chan, Golub and LeVeque do: squares about
            # zero would cancel where a column, say a time in seconds, is large and varies little.
            joined = count + found.rows
            squares += found.squares + (found.mean - mean) ** 2 * (count * found.rows / joined)
            mean += (found.mean - mean) * (found.rows / joined)
            count, low, high = joined, np.minimum(low, found.low), np.maximum(high, found.high)
        if count == 0:
            raise InputError("cannot standardise over a graph without cells")
        std = np.where(low == high, 1.0, np.sqrt(squares / count))
        return cls(of, tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    def rows(self, snapshot: Snapshot) -> Array:
        of = self.of
        return of.changed(snapshot, self._scaled) if isinstance(of, Degrees) else self._scaled(of.rows(snapshot))

    def _scaled(self, rows: Array) -> Array:
        scaled: Array = (rows - np.array(self.mean)) / np.array(self.std)
        return scaled.astype(np.float32)

    def recipe(self) -> dict[str, Any]:
        return {
            "kind": "standardised",
            "mean": [float(mean) for mean in self.mean],
            "std": [float(std) for std in self.std],
            "of": self.of.recipe(),
        }


class _Moments(NamedTuple):
    """Rows of one snapshot: how many, the mean of each column, the squares about it, the least and the largest."""

    rows: int
    mean: Array
    squares: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, carrier: Carrier, snapshot: Snapshot) -> _Moments:
        from strobe.ops.columns import column_extremes, column_squares, column_sums

        x = carrier.rows(snapshot)
        if len(x) == 0:
            nothing = np.zeros(carrier.shape)
            return cls(0, nothing, nothing, nothing, nothing)
        total = column_sums(x)
        if not bool(np.isfinite(total).all()) and not bool(np.isfinite(x).all()):
            column = int(np.argmin(np.isfinite(x).all(0)))
            raise InputError(f"snapshot {snapshot.t}: feature {column} is not finite everywhere, so it has no mean")
        mean = total / len(x)
        return cls(len(x), mean, column_squares(x, mean), *column_extremes(x))


def given(carrier: Carrier | None) -> Given | None:
    """The carrier with an array at the bottom of a recipe, if there is one."""
    if isinstance(carrier, Standardised):
        return given(carrier.of)
    if isinstance(carrier, Beside):
        return next((bottom for part in carrier.parts if (bottom := given(part)) is not None), None)
    return carrier if isinstance(carrier, Given) else None


def resting_on(carrier: Carrier, bottom: Given) -> Carrier:
    """The same recipe over another carrier at its bottom; one that rests on no array stays as it is."""
    if isinstance(carrier, Standardised):
        return replace(carrier, of=resting_on(carrier.of, bottom))
    if isinstance(carrier, Beside):
        return Beside(tuple(resting_on(part, bottom) for part in carrier.parts))
    return bottom if isinstance(carrier, Given) else carrier


def size_and_origin(carrier: Carrier) -> tuple[str, str]:
    """How many values a cell has and where they come from, for people: ("16", "per cell")."""
    bottom = given(carrier)
    origin = "derived" if bottom is None else "per node" if isinstance(bottom, Static) else "per cell"
    return "×".join(map(str, carrier.shape)) or "1", origin


def from_recipe(recipe: dict[str, Any] | None, values: Array | None) -> Carrier | None:
    """Rebuilds a carrier from its recipe and, where it has one, its stored array."""
    if recipe is None:
        return None
    kind = recipe.get("kind")
    if kind in ("static", "per_cell"):
        if values is None:
            raise FormatError(f"the {kind} values of this graph are missing")
        return Static(values) if kind == "static" else PerCell(values)
    if kind == "degrees":
        return Degrees(log=recipe["log"])
    if kind == "signature":
        return Signature(recipe["width"], recipe["seed"])
    if kind == "beside":
        parts = [from_recipe(part, values) for part in recipe["parts"]]
        return Beside(tuple(part for part in parts if part is not None))
    if kind == "standardised":
        inner = from_recipe(recipe["of"], values)
        assert inner is not None
        return Standardised(inner, tuple(recipe["mean"]), tuple(recipe["std"]))
    raise FormatError(f"unknown kind of features {kind!r}: this graph was written by a newer version")


def _refuse_scalars(of: Carrier, what: str = "standardised") -> None:
    if len(of.shape) != 1:
        raise InputError(f"only rows of features can be {what}, not values of shape {of.shape}")


def _mixed(counter: Any) -> Any:
    """A well-mixed 64-bit number for each counter (the generator SplitMix64 of Steele, Lea and Flood 2014)."""
    z = counter * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)  # wraps around, as it should
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _rows_of_numbers(values: Array) -> Array:
    array = as_array(values, "values")
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise InputError(f"values must be rows of numbers, not {array.dtype} of shape {array.shape}")
    return read_only(array)
