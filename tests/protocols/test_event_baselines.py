from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from strobe.protocols.event_baselines import BASELINES, WINDOW, score_baseline
from strobe.protocols.events import EventStream
from strobe.protocols.ranking import rank_events
from tests.support.event_streams import random_stream, with_changed_tail

#: source 0 meets 0, 1, 0; source 1 meets 2; then a batch of two events is scored
BY_HAND = EventStream(
    src=np.array([0, 0, 1, 0, 0, 1]),
    dst=np.array([0, 1, 2, 0, 1, 3]),
    time=np.array([0.0, 10.0, 20.0, 30.0, 100.0, 100.0]),
    num_src=2,
    num_dst=4,
    train_end=4,
    validation_end=6,
    batch_size=2,
)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("edgebank", [1.5, 3.0]),  # met: {0, 1}; event 1 asks 3, which is tied with 0 and 1 behind 2
        ("edgebank-window", [3.0, 2.5]),  # the window of 4.5 s before 30 has pair (0, 0) alone
        ("most-recent-first", [2.0, 4.0]),  # 0 (at 30), 1 (at 10), 2; and 2, 0, 1, 3
        ("last-meeting", [2.0, 3.0]),
        ("number-of-meetings", [2.0, 3.0]),
        ("popularity", [2.5, 4.0]),  # counts 2, 1, 1, 0
    ],
)
def test_ranks_by_hand(name: str, ranks: list[float]) -> None:
    [(first, scores)] = score_baseline(BY_HAND, name, "validation")
    assert rank_events(BY_HAND, first, scores).tolist() == ranks


Rule = Callable[[list[tuple[int, int, float]], int, int, float], tuple[float, ...]]


def _last(events: list[tuple[int, int, float]]) -> float:
    return max((time for _, _, time in events), default=-np.inf)


PLAIN: dict[str, Rule] = {
    "edgebank": lambda events, s, d, w: (any(e[:2] == (s, d) for e in events),),
    "edgebank-window": lambda events, s, d, w: (any(e[:2] == (s, d) and e[2] >= _last(events) - w for e in events),),
    "most-recent-first": lambda events, s, d, w: (
        _last([e for e in events if e[:2] == (s, d)]),
        _last([e for e in events if e[1] == d]) if all(e[:2] != (s, d) for e in events) else 0.0,
    ),
    "last-meeting": lambda events, s, d, w: (_last([e for e in events if e[:2] == (s, d)]),),
    "number-of-meetings": lambda events, s, d, w: (sum(e[:2] == (s, d) for e in events),),
    "popularity": lambda events, s, d, w: (sum(e[1] == d for e in events),),
}
"""Sort keys of a destination, from the events before the batch: larger is better."""


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("seed", range(3))
def test_scores_sort_destinations_as_the_rules_do(name: str, seed: int) -> None:
    stream = random_stream(seed)
    events = list(zip(stream.src.tolist(), stream.dst.tolist(), stream.time.tolist(), strict=True))
    window = WINDOW * (events[stream.train_end - 1][2] - events[0][2])
    for part in ("validation", "test"):
        for first, scores in score_baseline(stream, name, part):
            for row in range(len(scores)):
                source = int(stream.src[first + row])
                keys = [PLAIN[name](events[:first], source, dst, window) for dst in range(stream.num_dst)]
                above = [[keys[a] > keys[b] for b in range(stream.num_dst)] for a in range(stream.num_dst)]
                assert np.array_equal(scores[row][:, None] > scores[row][None, :], above)


@pytest.mark.parametrize("name", BASELINES)
def test_later_events_change_no_score(name: str) -> None:
    stream = random_stream(5)
    batches = list(stream.batches("test"))
    before = dict(score_baseline(stream, name, "test"))
    for number, (_, end) in enumerate(batches):
        changed = dict(score_baseline(with_changed_tail(stream, end), name, "test"))
        for first, _ in batches[: number + 1]:
            above = [scores[:, :, None] > scores[:, None, :] for scores in (before[first], changed[first])]
            assert np.array_equal(above[0], above[1])
