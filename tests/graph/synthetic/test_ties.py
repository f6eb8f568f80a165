from __future__ import annotations

import numpy as np
import pytest

from strobe.graph.synthetic.draws import Draws
from strobe.graph.synthetic.ties import Ties
from strobe.ops.csr import FloatArray


def alive(ties: Ties) -> set[tuple[float, ...]]:
    return {tuple(row) for numbers, _ in ties.parts() for row in numbers.tolist()}


def test_every_snapshot_has_exactly_as_many_as_asked() -> None:
    ties = Ties(0)
    for count in (10, 25, 7, 0, 3):
        ties.step(count, 0.3)
        assert len(alive(ties)) == count


def test_churn_is_the_share_that_ends() -> None:
    ties, kept = Ties(0), []
    ties.step(20_000, 0.3)
    for _ in range(5):
        before = alive(ties)
        ties.step(20_000, 0.3)
        kept.append(len(alive(ties) & before))
    # Binomial with standard deviation sqrt(20,000 * 0.3 * 0.7) = 65; five standard deviations.
    assert kept == pytest.approx([14_000] * 5, abs=5 * 65)


@pytest.mark.parametrize(("churn", "kept"), [(0.0, 50), (1.0, 0)])
def test_churn_0_keeps_all_and_churn_1_none(churn: float, kept: int) -> None:
    ties = Ties(0)
    ties.step(50, churn)
    before = alive(ties)
    ties.step(60, churn)
    assert len(alive(ties) & before) == kept


def test_an_edge_that_ended_never_returns() -> None:
    ties, past = Ties(0), set[tuple[float, ...]]()
    before = set[tuple[float, ...]]()
    for _ in range(10):
        ties.step(100, 0.4)
        now = alive(ties)
        past |= before - now
        assert not now & past
        before = now


def test_the_oldest_go_when_there_are_too_many() -> None:
    ties = Ties(0)
    for count in (10, 20, 30):
        ties.step(count, 0.0)
    ties.step(15, 0.0)
    born = np.concatenate([born for _, born in ties.parts()])
    assert np.bincount(born).tolist() == [0, 5, 10]


@pytest.mark.parametrize("churn", [0.0, 0.01])
def test_a_long_past_is_not_read_birth_by_birth(churn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ties = Ties(0)
    for t in range(500):
        ties.step(10 * t, churn)
    reads: list[int] = []
    read = Draws.rows

    def counted(stream: Draws, first: int, count: int) -> FloatArray:
        reads.append(count)
        return read(stream, first, count)

    monkeypatch.setattr(Draws, "rows", counted)
    assert len(alive(ties)) == 4990
    assert len(reads) < 10
