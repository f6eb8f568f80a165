from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import strobe
from strobe.errors import InputError
from strobe.protocols.next_links import PARTS, snapshot_links, split_links
from tests.protocols.link_files import load_links, random_links


def test_links_are_pairs_once_with_self_loops(tmp_path: Path) -> None:
    links = random_links(0)
    graph = load_links(tmp_path, links)
    for t, each in enumerate(links):
        expected = sorted({(min(u, v), max(u, v)) for u, v in each.tolist()})
        assert snapshot_links(graph[t]).tolist() == [list(pair) for pair in expected]


def test_shares_are_those_of_the_authors_code(tmp_path: Path) -> None:
    links = random_links(1)
    graph = load_links(tmp_path, links)
    for t in range(len(graph) - 1):
        seen = set(graph[t].nodes.tolist())
        eligible = {(min(u, v), max(u, v)) for u, v in links[t + 1].tolist() if u in seen and v in seen}
        step, number = split_links(graph, t), len(eligible)
        counts = {part: int(step[part].labels.sum()) for part in PARTS}
        assert counts["validation"] == int(0.2 * number)
        assert counts["test"] == int(0.6 * number)
        assert sum(counts.values()) == number
        positives = [tuple(pair) for part in PARTS for pair in step[part].pairs[step[part].labels > 0].tolist()]
        assert sorted(positives) == sorted(eligible)


def test_non_links_are_as_many_distinct_pairs_of_nodes_seen_so_far(tmp_path: Path) -> None:
    links = random_links(2)
    graph = load_links(tmp_path, links)
    for t in range(len(graph) - 1):
        following = {(min(u, v), max(u, v)) for u, v in links[t + 1].tolist()}
        for pairs in split_links(graph, t).values():
            negatives = [(u, v) for u, v in pairs.pairs[pairs.labels == 0].tolist()]
            assert len(negatives) == len(set(negatives)) == int(pairs.labels.sum())
            assert all(u < v and (u, v) not in following for u, v in negatives)
            assert set(np.ravel(negatives).tolist()) <= set(graph[t].nodes.tolist())


def test_a_step_depends_on_its_two_snapshots_alone(tmp_path: Path) -> None:
    links = random_links(3)
    changed = [*links[:3], links[3][::-1] // 2, links[4]]
    changed[3][0] = links[3][-1]
    one, other = load_links(tmp_path / "a", links), load_links(tmp_path / "b", changed)
    for t in range(2):
        for part in PARTS:
            assert np.array_equal(split_links(one, t)[part].pairs, split_links(other, t)[part].pairs)


def test_too_few_links_or_non_links_are_refused() -> None:
    few = strobe.from_edges([np.array([[0, 1], [1, 2]])] * 2, num_nodes=3, directed=False)
    with pytest.raises(InputError, match="2 links"):
        split_links(few, 0)
    complete = strobe.from_edges([np.array(np.triu_indices(5, 1))] * 2, num_nodes=5, directed=False)
    with pytest.raises(InputError, match="without a link"):
        split_links(complete, 0)
