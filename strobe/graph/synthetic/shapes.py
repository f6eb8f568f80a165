"""Graphs with the published shapes of well-known data sets, at any scale, without downloads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from strobe.errors import OptionError, UnknownNameError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Static
from strobe.graph.sink import Sink
from strobe.graph.synthetic.base import (
    CHUNK,
    GeneratedSnapshot,
    Generator,
    RandomRows,
    RowRuns,
    apportion,
    avoid_self_loops,
    count,
    growth_curve,
    node_range,
    number,
    power_law_exponent,
    power_law_indices,
)
from strobe.ops.sparse.csr import IntArray


class DatasetShape(NamedTuple):
    """Published figures of a data set, and assumptions about what they leave open.

    ``snapshot_edges`` counts edges over all snapshots; None: each edge is in one snapshot. ``growth`` is the last
    snapshot's new edges over the first's. ``joining``: a node is present from its first use, not always.
    """

    snapshots: int
    nodes: int
    edges: int
    snapshot_edges: int | None
    bipartite: bool = False
    joining: bool = False
    growth: float = 3.0


SHAPES = {
    "slashdot": DatasetShape(80, 51_100, 140_000, 3_690_000),
    "stackexch": DatasetShape(170, 545_200, 1_300_000, 33_600_000),
    "rec-amazon": DatasetShape(70, 2_146_000, 5_840_000, 125_000_000, bipartite=True),
    "soc-flickr": DatasetShape(70, 2_303_000, 33_100_000, 263_000_000),
    "soc-youtube": DatasetShape(80, 3_224_000, 12_200_000, 332_000_000),
    "soc-bitcoin": DatasetShape(90, 24_570_000, 122_000_000, 1_050_000_000),
    "papers100M": DatasetShape(222, 111_100_000, 1_600_000_000, None, joining=True, growth=1e5),
}
"""Snapshots, edges and snapshot-edges of DynaHB's Table 1 (|S|, |E|, |EL|), nodes as its |TV| / |S|, which has more
digits than its |V| and says that all nodes are always present; papers100M from FlareDTDG's Tables 1 and 2, which do
not say how edges live: each in one snapshot here, papers present from their year on."""


class _Events(NamedTuple):
    """New edges per snapshot, nodes in use, and lifetimes of edges."""

    new: IntArray  # [T] new edges
    active: IntArray  # [T] nodes in use, the first ones by id
    life: int  # snapshots in which an edge shows
    longer: IntArray  # [T] how many of the new edges show in one snapshot more


@dataclass(frozen=True, kw_only=True)
class PublishedShape(Generator):
    """A copy of a published shape: nodes and edges of ``shape`` times ``scale``, the same snapshots.

    New edges per snapshot grow exponentially, nodes come into use with them, endpoints follow a power law; a bipartite
    shape runs from the lower half of the ids to the upper (the papers give no split). An edge lives k or k + 1
    snapshots, solved so that edges over all snapshots match the published number, edges cut off by the last snapshot
    included. All counts are exact to rounding. ``features`` > 0 gives every node that many standard normal numbers
    instead of its degrees.
    """

    name: ClassVar[str] = "shapes"
    shape: str = "soc-flickr"
    scale: float = number(1.0, 0, 1000)
    exponent: float = power_law_exponent()
    features: int = count(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape not in SHAPES:
            raise UnknownNameError("shape", self.shape, SHAPES)
        if self.num_nodes < 2:
            raise OptionError(
                f"scale {self.scale:g} leaves {self.num_nodes} of {self.shape}'s {SHAPES[self.shape].nodes:,} nodes; "
                f"it must be at least {2 / SHAPES[self.shape].nodes:.1g}"
            )

    @property
    def num_nodes(self) -> int:
        return round(SHAPES[self.shape].nodes * self.scale)

    @property
    def snapshots(self) -> int:
        return SHAPES[self.shape].snapshots

    def iter_snapshots(self) -> Iterator[GeneratedSnapshot]:
        draws, events = RandomRows(self.seed, 1), self._events
        first = np.cumsum(events.new) - events.new
        for t in range(self.snapshots):
            born = np.arange(max(0, t - events.life), t + 1)
            shown = np.where(born > t - events.life, events.new[born], events.longer[born])
            runs = RowRuns(first[born], shown, born)
            joined = int(events.active[t]) if SHAPES[self.shape].joining else self.num_nodes
            yield GeneratedSnapshot(self._edges(draws, runs), None if joined == self.num_nodes else node_range(joined))

    @cached_property
    def _events(self) -> _Events:
        shape, num = SHAPES[self.shape], self.snapshots
        curve = growth_curve(num, shape.growth, "exponential")
        new = apportion(curve, round(shape.edges * self.scale))
        active = np.rint(np.cumsum(curve) / curve.sum() * self.num_nodes).astype(np.int64).clip(2, self.num_nodes)
        if shape.snapshot_edges is None:
            return _Events(new, active, 1, np.zeros(num, np.int64))
        left = np.arange(num, 0, -1)  # snapshots in which an edge of each can still show
        shown = np.array([(new * np.minimum(left, life)).sum() for life in range(num + 1)])
        goal = round(shape.snapshot_edges * self.scale)
        life = int(np.searchsorted(shown, goal, side="right")) - 1
        longer = apportion(new * (left > life) * 1.0, goal - int(shown[life])) if life < num else new * 0
        return _Events(new, active, life, np.minimum(longer, new))

    def _edges(self, draws: RandomRows, runs: RowRuns) -> Iterator[Edges]:
        for numbers, born in draws.parts(runs):
            halves = SHAPES[self.shape].bipartite
            size = self._events.active[born] // (2 if halves else 1)
            src, dst = (power_law_indices(numbers[:, end], size, self.exponent) for end in (0, 1))
            yield Edges(src, dst + self.num_nodes // 2 if halves else avoid_self_loops(src, dst, size))

    def _finish(self, builder: GraphBuilder, sink: Sink | None) -> DynamicGraph:
        if not self.features:
            return super()._finish(builder, sink)
        x = self._sample_features(None if sink is None else sink.scratch_dir)
        return builder.finish(features=Static(x), info=self.info())

    def _sample_features(self, scratch: Path | None) -> Array:
        """Features of all nodes, mapped from an unnamed file: they may be larger than memory."""
        rng = np.random.default_rng([self.seed, 2])
        with tempfile.TemporaryFile(dir=scratch) as file:
            for start in range(0, self.num_nodes, step := max(1, CHUNK // self.features)):
                rows = min(step, self.num_nodes - start)
                file.write(rng.standard_normal((rows, self.features), np.float32).data)
            file.flush()
            return np.memmap(file, np.float32, "r", shape=(self.num_nodes, self.features))
