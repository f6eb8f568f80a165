from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest

import strobe
from strobe.api import open_run
from strobe.engine.inputs.graph_source import fingerprint, open_graph_source, reopen
from strobe.errors import FormatError, OptionError
from strobe.graph import DynamicGraph, Static, from_edges
from tests.support.runs import small_graph


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
        open_graph_source(tmp_path / "paymnts")


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(OptionError, match="or the name of a data set, not a list"):
        open_graph_source([1, 2])  # type: ignore[arg-type]


def test_graphs_of_the_same_counts_have_different_fingerprints() -> None:
    assert fingerprint(_graph(0)) == fingerprint(_graph(0))
    assert fingerprint(_graph(0)) != fingerprint(_graph(1))


def test_so_are_graphs_whose_nodes_carry_something_else() -> None:
    assert fingerprint(_graph(0)) != fingerprint(_graph(0, x=2.0))


def test_a_graph_without_snapshots_has_a_fingerprint_too() -> None:
    assert fingerprint(_graph(0)[:0])["snapshots"] == 0


def test_a_graph_that_was_opened_is_found_again(tmp_path: Path) -> None:
    _graph(0).save(tmp_path / "kept")
    graph = strobe.open(tmp_path / "kept")
    assert open_graph_source(graph).origin == {"path": str(tmp_path / "kept")}
    assert open_graph_source(_graph(0)).origin is None
    for changed in (graph[1:], graph[:], graph.subset([0, 1]), graph.with_features(None), graph.with_labels(None)):
        assert open_graph_source(changed).origin is None


def test_a_graph_that_was_replaced_since_it_was_opened_is_one_in_memory(tmp_path: Path) -> None:
    _graph(0).save(tmp_path / "kept")
    graph = strobe.open(tmp_path / "kept")
    _graph(1).save(tmp_path / "kept", overwrite=True)
    assert open_graph_source(graph).origin is None
    rmtree(tmp_path / "kept")
    assert open_graph_source(graph).origin is None


def test_a_run_on_an_opened_graph_resumes_and_predicts_without_it(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "kept")
    out = tmp_path / "run"
    graph = strobe.open(tmp_path / "kept")
    strobe.train(graph, "tgcn", "regression", out=out, epochs=1)
    resumed = strobe.train(None, None, out=out, resume=True, epochs=2)
    assert resumed.epochs == 2
    assert open_run(out).predict().num_rows > 0
    strobe.train(graph[:9], "tgcn", "regression", out=tmp_path / "part", epochs=1)
    with pytest.raises(OptionError, match=r"graph\.save"):
        open_run(tmp_path / "part")
    small_graph(1).save(tmp_path / "kept", overwrite=True)
    with pytest.raises(OptionError, match="graph checksum was"):
        strobe.train(None, None, out=out, resume=True, epochs=3)


def test_a_path_too_long_for_a_file_is_no_graph() -> None:
    with pytest.raises(FormatError, match="no longer"):
        reopen({"path": "9" * 300})
