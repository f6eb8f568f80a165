"""Graphs whose snapshots arrive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.graph import DynamicGraph, Edges, GrowingGraph, open_graph
from strobe.graph.follow import Follower, follow
from strobe.graph.ingest import Every
from tests.support.follow_sources import options
from tests.support.graphs import AWKWARD, full_graph


def _until_it_ends(following: Follower) -> list[int]:
    built = []
    while not following.ended:
        built.append(following.poll())
    return built


@pytest.mark.parametrize("name", AWKWARD)
def test_a_graph_arrives_snapshot_by_snapshot(name: str, tmp_path: Path) -> None:
    graph = AWKWARD[name].build()
    with follow(graph, into=tmp_path / "graph") as following:
        assert _until_it_ends(following) == list(range(1, len(graph) + 1))
    grown = open_graph(tmp_path / "graph")
    assert list(grown) == list(graph)
    assert grown.times == graph.times
    assert len(graph) == 0 or grown == graph


def test_following_a_saved_graph_resumes(tmp_path: Path) -> None:
    graph = full_graph().save(tmp_path / "saved")
    with follow(tmp_path / "saved", into=tmp_path / "graph") as following:
        assert following.poll() == 1
        assert not following.ended
        early = following.open()
        assert early.num_nodes == 3
        assert list(early.names or ()) == ["", "anna", "bob"]
    with follow(tmp_path / "saved", into=tmp_path / "graph") as following:
        assert following.poll() == following.poll() == 2
        assert following.ended
        assert following.open() == graph
        assert list(following.open().names or ()) == list(graph.names or ())
        assert following.open().info["source"] == "by hand"


def test_growing_graph_is_followed(tmp_path: Path) -> None:
    source = GrowingGraph.create(tmp_path / "source", weighted=True)
    with follow(tmp_path / "source", into=tmp_path / "graph") as following:
        assert following.poll() == 0
        for t in range(3):
            source.append(Edges([0], [t], [0.5]), names=[f"n{5 - t}"], x=np.full((t + 1, 2), t), time=f"day {t}")
            if t:
                assert following.poll() == t + 1
        ended = [following.ended]
        assert following.poll(ended=True) == 3
        assert [*ended, following.ended] == [False, True]
        assert following.open() == source.open()
        assert list(following.open(2).names or ()) == ["n5", "n4"]
        with pytest.raises(OptionError, match="is being written by another process"):
            follow(tmp_path / "source", into=tmp_path / "graph")
    with pytest.raises(OptionError, match="cannot be followed into itself"):
        follow(tmp_path / "source", into=tmp_path / "source")
    source.close()


def test_another_graph_is_refused(tmp_path: Path) -> None:
    graph = full_graph()
    with follow(graph, into=tmp_path / "graph") as following:
        following.poll()
    other: DynamicGraph = AWKWARD["a node that leaves and returns"].build()
    with pytest.raises(OptionError, match="its first snapshots are others"):
        follow(other, into=tmp_path / "graph")
    with pytest.raises(OptionError, match="a graph comes in snapshots of its own"):
        follow(graph, options(Every(1)), into=tmp_path / "graph")
    with follow(graph, into=tmp_path / "graph") as following:
        assert following.poll() == 2
