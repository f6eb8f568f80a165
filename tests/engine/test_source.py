from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strobe.engine.source import fingerprint, open_source
from strobe.errors import FormatError, OptionError
from strobe.graph import DynamicGraph, Static, from_edges


def _graph(seed: int, x: float = 1.0) -> DynamicGraph:
    """Graphs of the same counts, whatever the seed: a ring whose nodes are mixed."""
    rng = np.random.default_rng(seed)
    shots = []
    for _ in range(5):
        ring = rng.permutation(8)
        shots.append(np.stack([ring, np.roll(ring, 1)]))
    return from_edges(shots, num_nodes=8).with_features(Static(np.full((8, 2), x, np.float32)))


def test_a_graph_of_nearly_that_name_is_offered(tmp_path: Path) -> None:
    _graph(0).save(tmp_path / "payments")
    with pytest.raises(FormatError, match=r"Did you mean .*payments\?$"):
        open_source(tmp_path / "paymnts")


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(OptionError, match="or the name of a data set, not a list"):
        open_source([1, 2])  # type: ignore[arg-type]


def test_graphs_of_the_same_counts_are_told_apart() -> None:
    assert fingerprint(_graph(0)) == fingerprint(_graph(0))
    assert fingerprint(_graph(0)) != fingerprint(_graph(1))


def test_so_are_graphs_whose_nodes_carry_something_else() -> None:
    assert fingerprint(_graph(0)) != fingerprint(_graph(0, x=2.0))


def test_a_graph_without_snapshots_has_a_fingerprint_too() -> None:
    assert fingerprint(_graph(0)[:0])["snapshots"] == 0
