from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import UnknownNameError
from strobe.protocols import ProtocolRequest, find_protocol
from strobe.protocols.events import EventStream
from strobe.protocols.ranking import rank_events, reciprocal_mean
from strobe.protocols.tgb import BASELINES, WIKI, WINDOW, score_baseline
from tests.support.event_streams import random_stream, with_changed_tail
from tests.support.py_tgb import reciprocal_ranks_by_py_tgb

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


SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")

#: MRR of the validation and the test part; EdgeBank's are those of TGB's leaderboard
KNOWN = {
    "edgebank": (0.5267, 0.4947),
    "edgebank-window": (0.5997, 0.5710),
    "most-recent-first": (0.7588, 0.7290),
}


def write_stream(folder: Path, num_events: int = 600) -> Path:
    """A file in the form of wikipedia_jodie, with users from 0 and pages from 50."""
    stream = random_stream(0, num_events=num_events, num_src=12, num_dst=15)
    (folder / "wikipedia_jodie").mkdir()
    rows = (f"{s},{d + 50},{t:.0f},0\n" for s, d, t in zip(stream.src, stream.dst, stream.time, strict=True))
    with gzip.open(folder / "wikipedia_jodie" / "wikipedia.csv.gz", "wt") as file:
        file.writelines(["u,i,ts,label\n", *rows])
    return folder


def test_the_protocol_is_registered() -> None:
    assert find_protocol("tgbl-wiki") is WIKI
    assert {row.method for row in WIKI.published()} >= {"EdgeBank, unlimited", "EdgeBank, time window", "DyGFormer"}


def test_parts_and_batches_are_those_of_tgb(tmp_path: Path) -> None:
    stream = WIKI.read(ProtocolRequest(data_dir=write_stream(tmp_path)))
    cuts = np.quantile(stream.time, [0.70, 0.85])
    assert stream.train_end == (stream.time <= cuts[0]).sum()
    assert stream.validation_end == (stream.time <= cuts[1]).sum()
    assert (stream.num_src, stream.num_dst, stream.batch_size) == (12, 15, 200)


def test_baselines_are_scored_on_every_event(tmp_path: Path) -> None:
    request = ProtocolRequest(data_dir=write_stream(tmp_path))
    stream, results = WIKI.read(request), WIKI.run_baselines(request)
    assert [result.method for result in results] == list(BASELINES)
    for result in results:
        ranks = [rank_events(stream, *batch) for batch in score_baseline(stream, result.method, "test")]
        assert result.test == pytest.approx((reciprocal_mean(np.concatenate(ranks)),), rel=1e-6)
        assert (result.coverage, result.seeds) == (1.0, (0,))


def test_a_model_has_a_value_per_seed(tmp_path: Path) -> None:
    stages: list[str] = []
    request = ProtocolRequest(
        data_dir=write_stream(tmp_path), seeds=2, epochs=1, on_stage=lambda stage, done, total: stages.append(stage)
    )
    result = WIKI.run(request)
    assert (result.method, result.seeds, result.coverage) == ("pair-network", (0, 1), 1.0)
    assert all(0 < value < 1 for value in (*result.validation, *result.test))
    assert result.settings["epochs"] == 1
    assert {stage.split(",")[0] for stage in stages} == {"training", "testing"}


def test_unknown_models_and_data_sets_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'edgebank'"):
        WIKI.run(ProtocolRequest(model="edgebnk"))
    with pytest.raises(UnknownNameError, match="wikipedia_jodie"):
        WIKI.run(ProtocolRequest(data="as733"))


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "wikipedia_jodie").is_dir(), reason="wikipedia_jodie is not on this machine")
def test_baselines_have_the_published_values() -> None:
    request = ProtocolRequest(data_dir=SHARED)
    stream = WIKI.read(request)
    assert {part: end - first for part, (first, end) in stream.parts.items()} == {
        "train": 110232,
        "validation": 23621,
        "test": 23621,
    }
    for result in WIKI.run_baselines(request):
        if result.method in KNOWN:
            assert (round(result.validation[0], 4), round(result.test[0], 4)) == KNOWN[result.method]
    published = {row.method: (row.validation, row.test) for row in WIKI.published()}
    assert published["EdgeBank, unlimited"] == KNOWN["edgebank"]
    assert published["EdgeBank, time window"] == KNOWN["edgebank-window"]


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "wikipedia_jodie").is_dir(), reason="wikipedia_jodie is not on this machine")
def test_ranks_on_the_real_events_equal_those_of_py_tgb() -> None:
    stream = WIKI.read(ProtocolRequest(data_dir=SHARED))
    for first, scores in score_baseline(stream, "most-recent-first", "test"):
        theirs = reciprocal_ranks_by_py_tgb(stream, first, scores)
        assert theirs == pytest.approx(1 / rank_events(stream, first, scores), rel=1e-6)
