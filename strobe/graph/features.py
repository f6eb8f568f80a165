"""Feature providers: values stored per node or per cell, and values derived from edges.

Features and labels are both *feature providers*: they return one row per cell of a snapshot. Stored ones have an array;
derived ones have a recipe, take no space on disk, and are computed when a snapshot is read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from strobe.errors import FormatError, InputError
from strobe.graph.arrays import Array, as_array, is_mapped, read_only
from strobe.graph.disk.metadata import MAX_SIGNATURE_WIDTH
from strobe.ops.graph.degrees import lookup_by_degree, max_degree
from strobe.ops.sparse.csr import IntArray

if TYPE_CHECKING:
    from strobe.graph.dynamic import DynamicGraph
    from strobe.graph.snapshot import Snapshot


class FeatureProvider(ABC):
    """Return the rows of a snapshot's cells, in the order of its nodes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one cell's value: (F,) for F features, () for one label."""

    @abstractmethod
    def rows(self, snapshot: Snapshot) -> Array:
        """Return the values of the snapshot's cells, [n_t, *shape]."""

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Return a JSON description for ``from_recipe``; arrays are stored separately."""


@dataclass(frozen=True, eq=False)
class StoredFeatures(FeatureProvider):
    """Provider with a stored array."""

    values: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _as_rows(self.values))

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
    def is_memory_mapped(self) -> bool:
        """Whether the values are memory-mapped."""
        return is_mapped(self.values)


@dataclass(frozen=True, eq=False)
class Static(StoredFeatures):
    """One value per node for all time, [N, …]. Reading a snapshot copies the rows of its nodes."""

    def rows(self, snapshot: Snapshot) -> Array:
        if snapshot.has_all_nodes:
            return self.values
        return self.values[snapshot.nodes]

    def recipe(self) -> dict[str, Any]:
        return {"kind": "static"}


@dataclass(frozen=True, eq=False)
class PerCell(StoredFeatures):
    """One value per cell, [C, …], t-major. Reading a snapshot is a view."""

    def rows(self, snapshot: Snapshot) -> Array:
        return self.values[snapshot.stored_cells]

    def recipe(self) -> dict[str, Any]:
        return {"kind": "per_cell"}


@dataclass(frozen=True, eq=False)
class LazyPerCell(PerCell):
    """Values per cell loaded snapshot by snapshot; ``values`` has no rows, only dtype and shape."""

    cell_ptr: IntArray

    @abstractmethod
    def rows_at(self, t: int) -> Array:
        """Return the rows of all cells of stored snapshot t."""

    @property
    def num_rows(self) -> int:
        return int(self.cell_ptr[-1])

    def rows(self, snapshot: Snapshot) -> Array:
        if not snapshot.num_nodes:
            return self.values
        cells = snapshot.stored_cells
        first = cells.start if isinstance(cells, slice) else int(cells[0])
        t = int(np.searchsorted(self.cell_ptr, first, side="right")) - 1
        rows = self.rows_at(t)
        return rows if isinstance(cells, slice) else rows[cells - self.cell_ptr[t]]


@dataclass(frozen=True)
class Degrees(FeatureProvider):
    """In-degree and out-degree of every cell, optionally as log(1 + degree), float32 [n_t, 2].

    Parallel edges count each, edge weights do not; in an undirected graph both columns are equal.
    """

    log: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (2,)

    def rows(self, snapshot: Snapshot) -> Array:
        return self.map_rows(snapshot, lambda rows: rows)

    def map_rows(self, snapshot: Snapshot, fn: Callable[[Array], Array]) -> Array:
        """Apply a row-wise function, evaluated once per distinct degree."""
        degree = np.arange(max_degree(snapshot.row_ptr, snapshot.out_degree) + 1)
        table = np.stack([degree, degree], axis=1).astype(np.float32)
        return lookup_by_degree(snapshot.row_ptr, snapshot.out_degree, fn(np.log1p(table) if self.log else table))

    def recipe(self) -> dict[str, Any]:
        return {"kind": "degrees", "log": bool(self.log)}


@dataclass(frozen=True)
class RandomSignature(FeatureProvider):
    """Pseudo-random signature of each node, +1 or -1, float32 [n_t, width].

    Computed from a hash of the node id, so equal in all snapshots, views and machines; nothing is stored. Signatures of
    two nodes are nearly orthogonal: a sum over neighbors is a random projection of the neighborhood, its product with a
    signature tests membership, and the product of two sums counts common neighbors. Mean 0, standard deviation 1.
    """

    width: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_SIGNATURE_WIDTH:
            raise InputError(f"the width of a signature must be from 1 to {MAX_SIGNATURE_WIDTH:,}, not {self.width}")
        if not 0 <= self.seed < 1 << 64:
            raise InputError(f"the seed of signatures must be from 0 to 2^64 - 1, not {self.seed}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    def rows(self, snapshot: Snapshot) -> Array:
        # One hash gives 64 signs. Its counter is (node, word); the seed is hashed first, so that nearby seeds
        # do not give the same signatures to nearby nodes.
        words = -(-self.width // 64)
        counter = snapshot.nodes.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(words, dtype=np.uint64)
        hashed = _splitmix64(counter ^ _splitmix64(np.array([self.seed], np.uint64)))
        columns = np.arange(self.width)
        bits = (hashed[:, columns // 64] >> (columns % 64).astype(np.uint64)) & np.uint64(1)
        signs: Array = bits.astype(np.float32) * 2 - 1
        return signs

    def recipe(self) -> dict[str, Any]:
        return {"kind": "random_signature", "width": int(self.width), "seed": int(self.seed)}


@dataclass(frozen=True)
class Concatenated(FeatureProvider):
    """Columns of several providers; at most one of them may have an array."""

    parts: tuple[FeatureProvider, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            _check_rows(part, "concatenated")
        holding = [part for part in self.parts if find_stored(part) is not None]
        if len(holding) > 1:
            raise InputError(f"{len(holding)} providers with arrays cannot be concatenated: join their arrays first")
        if not self.parts:
            raise InputError("Concatenated needs at least one provider")

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(part.shape[0] for part in self.parts),)

    def rows(self, snapshot: Snapshot) -> Array:
        joined: Array = np.concatenate([part.rows(snapshot) for part in self.parts], axis=1)
        return joined

    def recipe(self) -> dict[str, Any]:
        return {"kind": "concatenated", "parts": [part.recipe() for part in self.parts]}


@dataclass(frozen=True)
class Standardized(FeatureProvider):
    """Another provider standardized column by column with fixed numbers, float32.

    The numbers are part of the value, so they can come from training snapshots alone:
    ``Standardized.fit(Degrees(log=True), graph[:40])``.
    """

    inner: FeatureProvider
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_rows(self.inner)
        if not len(self.mean) == len(self.std) == self.inner.shape[0]:
            raise InputError(
                f"{len(self.mean)} means and {len(self.std)} deviations for {self.inner.shape[0]} features"
            )
        for column, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
                raise InputError(f"feature {column} cannot be standardized by mean {mean} and deviation {std}")

    @classmethod
    def fit(cls, inner: FeatureProvider, graph: DynamicGraph) -> Standardized:
        """Compute mean and standard deviation over all cells of ``graph``; a constant column gets std 1."""
        _check_rows(inner)
        from strobe.ops.runtime.parallel import map_in_order  # loads torch

        count, mean, squares = 0, np.zeros(inner.shape), np.zeros(inner.shape)
        low, high = np.full(inner.shape, np.inf), np.full(inner.shape, -np.inf)
        for part in map_in_order(lambda t: _Moments.compute(inner, graph[t]), len(graph)):
            if not part.rows:
                continue
            # Squares about the mean of each snapshot, merged as in Chan, Golub and LeVeque: squares about
            # zero would cancel in a column that is large and varies little, such as a time in seconds.
            joined = count + part.rows
            squares += part.squares + (part.mean - mean) ** 2 * (count * part.rows / joined)
            mean += (part.mean - mean) * (part.rows / joined)
            count, low, high = joined, np.minimum(low, part.low), np.maximum(high, part.high)
        if count == 0:
            raise InputError("cannot standardize over a graph without cells")
        std = np.where(low == high, 1.0, np.sqrt(squares / count))
        return cls(inner, tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    def rows(self, snapshot: Snapshot) -> Array:
        of = self.inner
        return of.map_rows(snapshot, self._scale) if isinstance(of, Degrees) else self._scale(of.rows(snapshot))

    def _scale(self, rows: Array) -> Array:
        scaled: Array = (rows - np.array(self.mean)) / np.array(self.std)
        return scaled.astype(np.float32)

    def recipe(self) -> dict[str, Any]:
        return {
            "kind": "standardized",
            "mean": [float(mean) for mean in self.mean],
            "std": [float(std) for std in self.std],
            "inner": self.inner.recipe(),
        }


class _Moments(NamedTuple):
    """Statistics of one snapshot's rows: their number, and mean, sum of squared deviations, min and max per column."""

    rows: int
    mean: Array
    squares: Array
    low: Array
    high: Array

    @classmethod
    def compute(cls, provider: FeatureProvider, snapshot: Snapshot) -> _Moments:
        from strobe.ops.graph.column_stats import column_extremes, column_squared_differences, column_sums

        x = provider.rows(snapshot)
        if len(x) == 0:
            nothing = np.zeros(provider.shape)
            return cls(0, nothing, nothing, nothing, nothing)
        total = column_sums(x)
        if not bool(np.isfinite(total).all()) and not bool(np.isfinite(x).all()):
            column = int(np.argmin(np.isfinite(x).all(0)))
            raise InputError(f"snapshot {snapshot.t}: feature {column} is not finite everywhere, so it has no mean")
        mean = total / len(x)
        return cls(len(x), mean, column_squared_differences(x, None, mean), *column_extremes(x))


def find_stored(provider: FeatureProvider | None) -> StoredFeatures | None:
    """Return the provider with the stored array below a recipe, if there is one."""
    if isinstance(provider, Standardized):
        return find_stored(provider.inner)
    if isinstance(provider, Concatenated):
        return next((bottom for part in provider.parts if (bottom := find_stored(part)) is not None), None)
    return provider if isinstance(provider, StoredFeatures) else None


def replace_stored(provider: FeatureProvider, stored: StoredFeatures) -> FeatureProvider:
    """Return the recipe over another stored provider; a recipe without an array is unchanged."""
    if isinstance(provider, Standardized):
        return replace(provider, inner=replace_stored(provider.inner, stored))
    if isinstance(provider, Concatenated):
        return Concatenated(tuple(replace_stored(part, stored) for part in provider.parts))
    return stored if isinstance(provider, StoredFeatures) else provider


def describe_provider(provider: FeatureProvider) -> tuple[str, str]:
    """Return the shape of a cell's value and its origin as text: ("16", "per cell")."""
    bottom = find_stored(provider)
    origin = "derived" if bottom is None else "per node" if isinstance(bottom, Static) else "per cell"
    return "×".join(map(str, provider.shape)) or "1", origin


def from_recipe(recipe: dict[str, Any] | None, values: Array | None) -> FeatureProvider | None:
    """Make a provider from its recipe and its stored array, if it has one."""
    if recipe is None:
        return None
    kind = recipe.get("kind")
    if kind in ("static", "per_cell"):
        if values is None:
            raise FormatError(f"the {kind} values of this graph are missing")
        return Static(values) if kind == "static" else PerCell(values)
    if kind == "degrees":
        return Degrees(log=recipe["log"])
    if kind == "random_signature":
        return RandomSignature(recipe["width"], recipe["seed"])
    if kind == "concatenated":
        parts = [from_recipe(part, values) for part in recipe["parts"]]
        return Concatenated(tuple(part for part in parts if part is not None))
    if kind == "standardized":
        inner = from_recipe(recipe["inner"], values)
        assert inner is not None
        return Standardized(inner, tuple(recipe["mean"]), tuple(recipe["std"]))
    raise FormatError(f"unknown kind of features {kind!r}: this graph was written by a newer version")


def _check_rows(provider: FeatureProvider, what: str = "standardized") -> None:
    if len(provider.shape) != 1:
        raise InputError(f"only rows of features can be {what}, not values of shape {provider.shape}")


def _splitmix64(counter: Any) -> Any:
    """Hash each counter to 64 bits (SplitMix64 of Steele, Lea and Flood 2014)."""
    z = counter * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)  # wraps around on purpose
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _as_rows(values: Array) -> Array:
    array = as_array(values, "values")
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise InputError(f"values must be rows of numbers, not {array.dtype} of shape {array.shape}")
    return read_only(array)
