"""DyGLib's protocols: parts, negatives, memories of EdgeBank and metrics, against plain loops."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from strobe.protocols import ProtocolRequest, find_protocol
from strobe.protocols.dyglib import BASELINES, mean_metrics, score_rules
from strobe.protocols.dyglib_events import STRATEGIES, SplitEvents, iter_batches

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")
Pairs = list[tuple[int, int]]


def random_events(seed: int = 0, number: int = 2000, nodes: int = 40, years: int = 9) -> SplitEvents:
    rng = np.random.default_rng(seed)
    src, dst = rng.zipf(1.6, (2, number)) % nodes
    return SplitEvents.of_events(src, dst, np.sort(rng.integers(2006, 2006 + years, number)).astype(np.float64))


def pairs_of(events: SplitEvents, chosen: np.ndarray) -> Pairs:
    return list(zip(events.src[chosen].tolist(), events.dst[chosen].tolist(), strict=True))


def test_training_has_no_event_of_a_node_that_is_new_nodes() -> None:
    events = random_events()
    validation, test = np.quantile(events.time, [0.7, 0.85])
    new_nodes = set(events.new_nodes.tolist())
    assert len(new_nodes) == events.num_nodes // 10
    for k, (u, v) in enumerate(pairs_of(events, np.arange(len(events.src)))):
        assert events.is_training[k] == (events.time[k] <= validation and not {u, v} & new_nodes)
    known = {node for pair in pairs_of(events, events.is_training) for node in pair}
    for k in events.events("test", "all nodes"):
        assert events.time[k] > test
        is_new = not {int(events.src[k]), int(events.dst[k])} <= known
        assert is_new == (k in events.events("test", "new nodes"))
    graph = events.graph(training_only=True)
    for t in range(events.end_snapshots[0] + 1):
        assert not new_nodes & set(graph[t].nodes.tolist())
    assert len(events.graph(training_only=False)) == len(graph) == 9


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_negatives_are_drawn_as_the_strategy_says(strategy: str, part: str) -> None:
    events = random_events()
    observed = {"validation": events.time[events.is_training][-1], "test": events.end_times[1]}[part]
    for batch in iter_batches(events, part, "all nodes", strategy):
        size = len(batch.events)
        negatives = list(zip(batch.pairs.src[size:].tolist(), batch.pairs.dst[size:].tolist(), strict=True))
        assert batch.pairs.target[size:].tolist() == events.snapshot[batch.events].tolist()
        if strategy == "random":
            assert np.array_equal(batch.pairs.src[size:], batch.pairs.src[:size])
            continue
        start, end = events.time[batch.events[[0, -1]]]
        past = set(pairs_of(events, events.time <= start))
        past -= set(pairs_of(events, (events.time >= start) & (events.time <= end)))
        if strategy == "inductive":
            past -= set(pairs_of(events, events.time <= observed))
        others = [pair for pair in negatives if pair not in past]
        assert len(others) == max(size - len(past), 0)
        assert not set(others) & set(pairs_of(events, batch.events))
        assert len(set(negatives)) == size


@pytest.mark.parametrize("setting", ["all nodes", "new nodes"])
def test_edgebanks_memories_are_those_of_plain_loops(setting: str) -> None:
    events = random_events(1)
    scores = score_rules(events, "test", setting, "random")
    for k, batch in enumerate(iter_batches(events, "test", setting, "random")):
        start = batch.events[0]
        kept = events.is_training | ((events.time > events.end_times[0]) & (np.arange(len(events.src)) < start))
        times, history = events.time[kept], pairs_of(events, kept)
        count = Counter(history)
        by_pair: dict[tuple[int, int], list[float]] = {}
        for pair, time in zip(history, times, strict=True):
            by_pair.setdefault(pair, []).append(float(time))
        gaps = sum(float(np.mean(np.diff(each))) for each in by_pair.values() if len(each) > 1)
        begin = {"window": np.quantile(times, 0.85), "interval": times.max() - gaps / len(by_pair)}
        memories = {
            "edgebank": set(count),
            "edgebank-window": {pair for pair, each in by_pair.items() if max(each) >= begin["window"]},
            "edgebank-interval": {pair for pair, each in by_pair.items() if max(each) >= begin["interval"]},
            "edgebank-threshold": {pair for pair, n in count.items() if n >= np.mean(list(count.values()))},
        }
        asked = list(zip(batch.pairs.src.tolist(), batch.pairs.dst.tolist(), strict=True))
        for name, memory in memories.items():
            assert scores[name][k].tolist() == [pair in memory for pair in asked]


def test_metrics_are_means_over_batches() -> None:
    batches = [np.array([0.9, 0.2, 0.5, 0.1]), np.array([0.3, 0.3])]
    precision, area = mean_metrics(batches)
    assert precision == pytest.approx(((1 + 2 / 3) / 2 + 0.5) / 2)
    assert area == pytest.approx((3 / 4 + 0.5) / 2)


def write_votes(folder: Path) -> Path:
    events = random_events(2, number=900, nodes=20)
    (folder / "canvote").mkdir()
    with gzip.open(folder / "canvote" / "canVote_edgelist.txt.gz", "wt") as file:
        for s, d, t in zip(events.src, events.dst, events.time, strict=True):
            file.write(f"{t:.0f},member {s},member {d},6\n")
    return folder


@pytest.mark.parametrize("method", ["gcn", "gcn+pair-features"])
def test_a_model_has_values_of_all_and_of_new_nodes(tmp_path: Path, method: str) -> None:
    request = ProtocolRequest(model=method, seeds=1, first_seed=3, epochs=1, data_dir=write_votes(tmp_path))
    result = find_protocol("dyglib-random").run(request)
    assert (result.seeds, result.coverage) == ((3,), 1.0)
    assert list(result.more) == ["AUC", "AP new nodes", "AUC new nodes"]
    assert all(0 < value[0] < 1 for value in (result.test, result.validation, *result.more.values()))


def test_every_strategy_has_a_protocol_with_the_same_baselines(tmp_path: Path) -> None:
    request = ProtocolRequest(data_dir=write_votes(tmp_path))
    for strategy in STRATEGIES:
        assert tuple(each.method for each in find_protocol(f"dyglib-{strategy}").run_baselines(request)) == BASELINES


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "canvote").is_dir(), reason="canvote and uslegis are not on this machine")
@pytest.mark.parametrize("data", ["canvote", "uslegis"])
def test_edgebank_is_close_to_the_published_values(data: str) -> None:
    for strategy in STRATEGIES:
        protocol = find_protocol(f"dyglib-{strategy}")
        found = {each.method: each.mean for each in protocol.run_baselines(ProtocolRequest(data=data, data_dir=SHARED))}
        [published] = [row.test for row in protocol.published(data) if row.method == "EdgeBank"]
        best = max(value for name, value in found.items() if name.startswith("edgebank"))
        assert best == pytest.approx(published, abs=0.01)  # ids of nodes, and so negatives, differ
