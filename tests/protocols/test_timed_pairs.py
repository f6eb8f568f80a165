from __future__ import annotations

import numpy as np
import pytest

import strobe
from strobe.protocols.timed_pairs import PairHistory, TimedPairs, score_pairs, snapshots_of_events
from strobe.tasks import LinkPrediction

NODES = 9


def random_events(seed: int, number: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, number))
    return src, dst, np.sort(rng.integers(3, 20, number)).astype(np.float64)


@pytest.mark.parametrize("seed", range(4))
def test_rules_are_those_of_their_definitions(seed: int) -> None:
    src, dst, time = random_events(seed)
    history = PairHistory(NODES)
    for part in np.split(np.arange(len(src)), [0, 13, 14, 50]):
        history.read(src[part], dst[part], time[part])
    asked = np.divmod(np.arange(NODES * NODES), NODES)
    scores = history.scores(*asked, since=14.0)
    events = list(zip(src.tolist(), dst.tolist(), time.tolist(), strict=True))
    order = []
    for k, (u, v) in enumerate(zip(*asked, strict=True)):
        met = [t for s, d, t in events if (s, d) == (u, v)]
        reached = [t for _, d, t in events if d == v]
        assert scores["edgebank"][k] == bool(met)
        assert scores["edgebank-window"][k] == any(t >= 14 for t in met)
        assert scores["popularity"][k] == len(reached)
        order.append((1, max(met)) if met else (0, max(reached, default=-1.0)))
    found = scores["most-recent-first"]
    for k in range(len(order)):
        for j in range(len(order)):
            assert (found[k] > found[j]) == (order[k] > order[j])


def test_rules_know_nothing_before_the_first_event() -> None:
    ends = np.array([0, 1]), np.array([1, 2])
    assert all((each == 0).all() for each in PairHistory(NODES).scores(*ends, since=0.0).values())


def test_snapshots_have_each_pair_once_and_the_nodes_of_their_events() -> None:
    graph = snapshots_of_events(np.array([0, 0, 2, 3]), np.array([1, 1, 2, 0]), np.array([0, 0, 0, 2]), NODES)
    assert [graph[t].num_edges for t in range(3)] == [1, 0, 1]
    assert [graph[t].nodes.tolist() for t in range(3)] == [[0, 1], [], [0, 3]]
    assert graph.directed


def test_a_run_scores_pairs_from_the_snapshots_before_their_target() -> None:
    src, dst, time = random_events(0, 200)
    snapshot = (time - 3).astype(np.int64) // 2
    asked = np.divmod(np.arange(NODES * NODES), NODES)

    def scored(changed_from: int) -> np.ndarray:
        ends = np.where(snapshot >= changed_from, (dst + 1) % NODES, dst)
        graph = snapshots_of_events(src, ends, snapshot, NODES)
        task = LinkPrediction(train=4, validation=1)
        run = strobe.train(graph, "gcn", task, epochs=1, window=1, deterministic=True)
        target = np.arange(len(asked[0])) % 2 + 6
        pairs = TimedPairs(src=asked[0], dst=asked[1], target=target, positive=np.zeros(len(target), bool))
        scores: np.ndarray = score_pairs(run, pairs)
        assert not np.isnan(scores).any()
        return scores

    known, changed = scored(99), scored(6)
    first = np.arange(len(known)) % 2 == 0
    assert np.array_equal(known[first], changed[first])  # snapshot 6 is a target, not read
    assert not np.array_equal(known[~first], changed[~first])
