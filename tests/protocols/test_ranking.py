from __future__ import annotations

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.protocols.events import EventStream
from strobe.protocols.ranking import rank_events, reciprocal_mean
from tests.support.event_streams import negatives, plain_rank, random_stream
from tests.support.py_tgb import reciprocal_ranks_by_py_tgb


def one_event(num_dst: int, dst: int = 0) -> EventStream:
    arrays = {"src": np.zeros(1, np.int64), "dst": np.array([dst]), "time": np.zeros(1)}
    return EventStream(**arrays, num_src=1, num_dst=num_dst, train_end=0, validation_end=0, batch_size=1)


@pytest.mark.parametrize(
    ("scores", "rank"),
    [
        ([5, 1, 2, 3], 1.0),
        ([0, 1, 2, 3], 4.0),
        ([2, 2, 1, 0], 1.5),  # one tie: between 1 and 2
        ([2, 2, 2, 3], 3.0),  # below one, tied with two: between 2 and 4
        ([7, 7, 7, 7], 2.5),
        ([-np.inf, -np.inf, 0, 0], 3.5),
    ],
)
def test_ties_rank_between_the_optimistic_and_the_pessimistic_rank(scores: list[float], rank: float) -> None:
    assert rank_events(one_event(4), 0, np.array([scores], float)).tolist() == [rank]


def test_a_destination_of_the_same_source_and_time_is_no_negative() -> None:
    stream = EventStream(
        src=np.array([0, 0, 1]),
        dst=np.array([0, 1, 2]),
        time=np.array([5.0, 5.0, 5.0]),
        num_src=2,
        num_dst=3,
        train_end=0,
        validation_end=0,
        batch_size=3,
    )
    scores = np.array([[1.0, 9.0, 0.0], [1.0, 0.0, 2.0], [3.0, 3.0, 1.0]])
    # event 0 is not ranked against destination 1, nor event 1 against 0; source 1 has no other event
    assert rank_events(stream, 0, scores).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("seed", range(5))
def test_ranks_equal_their_definition(seed: int) -> None:
    stream = random_stream(seed, num_events=90, num_src=3, ties=6)
    scores = np.random.default_rng(seed).integers(0, 4, (len(stream), stream.num_dst)).astype(np.float32)
    expected = [
        plain_rank(scores[event], int(stream.dst[event]), negatives(stream, event, (0, len(stream))))
        for event in range(len(stream))
    ]
    assert rank_events(stream, 0, scores).tolist() == expected
    assert rank_events(stream, 30, scores[30:50]).tolist() == expected[30:50]
    assert reciprocal_mean(np.array(expected)) == pytest.approx(np.mean([1 / rank for rank in expected]))


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(OptionError, match="shape"):
        rank_events(one_event(4), 0, np.zeros((1, 3)))
    with pytest.raises(OptionError, match="NaN"):
        rank_events(one_event(2), 0, np.array([[0, np.nan]]))


@pytest.mark.parametrize("seed", range(3))
def test_ranks_equal_those_of_py_tgb(seed: int) -> None:
    stream = random_stream(seed, num_events=90, num_src=3, ties=6)
    scores = np.random.default_rng(seed).integers(0, 4, (len(stream), stream.num_dst)).astype(np.float32)
    theirs = reciprocal_ranks_by_py_tgb(stream, 0, scores)
    assert theirs == pytest.approx(1 / rank_events(stream, 0, scores), rel=1e-6)
