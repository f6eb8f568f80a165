"""UTG's protocol: the authors' parts, negatives and ranks."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from strobe.protocols import ProtocolRequest, find_protocol
from strobe.protocols import utg as module
from strobe.protocols.utg import WEEK, WeeklyEdges, mean_reciprocal_rank
from tests.protocols.test_snapshot_ranking import write_events

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def weekly_edges(seed: int = 0, nodes: int = 12) -> WeeklyEdges:
    rng = np.random.default_rng(seed)
    time = np.sort(rng.integers(0, 15 * WEEK, 400)).astype(np.float64)
    return WeeklyEdges.of_events(rng.integers(1, nodes, 400), rng.integers(3, nodes, 400), time)


def test_a_week_ends_with_a_multiple_of_seven_days_and_has_each_pair_once() -> None:
    time = np.array([50.0, 50, 51, 50 + WEEK, 51 + WEEK])
    edges = WeeklyEdges.of_events(np.array([1, 2, 1, 1, 1]), np.array([2, 1, 2, 2, 2]), time)
    assert edges.week.tolist() == [0, 0, 1, 2]
    assert edges.src.tolist() == [1, 2, 1, 1]


def test_parts_end_at_quantiles_of_the_snapshots() -> None:
    edges = weekly_edges()
    weeks = sorted(set(edges.week.tolist()))
    train, validation = (ceil(each) for each in np.quantile(weeks, [0.7, 0.85]))
    for part, first, last in (("train", 0, train), ("validation", train + 1, validation), ("test", validation + 1, 99)):
        assert set(edges.week[edges.part(part)].tolist()) == {t for t in weeks if first <= t <= last}


def test_negatives_are_past_destinations_first_then_random_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEGATIVES", 6)
    edges = weekly_edges()
    train = edges.part("train")
    past = set(zip(edges.src[train].tolist(), edges.dst[train].tolist(), strict=True))
    by_week = set(zip(edges.src.tolist(), edges.dst.tolist(), edges.week.tolist(), strict=True))
    for part, pairs in edges.scored_pairs.items():
        begins = np.flatnonzero(pairs.positive)
        assert np.array_equal(pairs.dst[begins], edges.dst[edges.part(part)])
        for rows in np.split(np.arange(len(pairs)), begins[1:]):
            src, week, dst = int(pairs.src[rows[0]]), int(pairs.target[rows[0]]), pairs.dst[rows[1:]].tolist()
            assert len(set(dst)) == len(dst) <= 6
            assert all((src, each, week) not in by_week and 3 <= each < 12 for each in dst)
            known = [each for each in range(12) if (src, each) in past and (src, each, week) not in by_week]
            from_past = [each for each in dst if (src, each) in past]
            assert len(from_past) == min(3, len(known))
            assert dst[: len(from_past)] == from_past


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_reciprocal_rank_counts_ties_half(seed: int) -> None:
    pairs = weekly_edges(seed).scored_pairs["test"]
    scores = np.random.default_rng(seed).integers(0, 4, len(pairs)).astype(np.float64)
    found = []
    for own, *negatives in np.split(scores, np.flatnonzero(pairs.positive)[1:]):
        optimistic, pessimistic = (np.sum(negatives > own), np.sum(negatives >= own))
        found.append(1 / (1 + (optimistic + pessimistic) / 2))
    assert mean_reciprocal_rank(pairs, scores) == pytest.approx(np.mean(found))


@pytest.mark.parametrize("method", ["gcn", "gcn+pair-features"])
def test_a_model_scores_every_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(module, "WEEK", 100)
    request = ProtocolRequest(model=method, seeds=2, epochs=1, data_dir=write_events(tmp_path))
    result = find_protocol("utg").run(request)
    assert (result.method, result.seeds, result.coverage) == (method, (0, 1), 1.0)
    assert all(0 < value < 1 for value in (*result.validation, *result.test))


@pytest.mark.skipif(not (SHARED / "collegemsg").is_dir(), reason="collegemsg is not on this machine")
def test_edgebank_with_a_window_has_the_published_value() -> None:
    results = {each.method: each for each in find_protocol("utg").run_baselines(ProtocolRequest(data_dir=SHARED))}
    [published] = [row.test for row in find_protocol("utg").published() if row.method == "EdgeBank"]
    assert round(results["edgebank-window"].mean, 3) == published
    assert results["edgebank"].settings["edges"] == {"train": 25159, "validation": 961, "test": 508}
