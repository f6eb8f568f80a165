"""EvolveGCN's and ROLAND's protocols on small streams of events."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import UnknownNameError
from strobe.graph import DynamicGraph
from strobe.protocols import ProtocolRequest, find_protocol, snapshot_ranking
from strobe.protocols.live_update import LIVE as LIVE_UPDATE
from strobe.protocols.snapshot_ranking import (
    CUTS,
    EVOLVEGCN,
    ROLAND_FIXED,
    Cut,
    EveryFromFirst,
    as_published,
    evolvegcn_o,
)
from strobe.tasks import LinkRanking

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")
LENGTH = 100
NODES = 20


def write_events(folder: Path, seed: int = 0, *, changed_from: int | None = None) -> Path:
    """A file like collegemsg's: 14 snapshots of 100 seconds, or weeks; those from ``changed_from`` on are others."""
    rng, rows = np.random.default_rng(seed), []
    other = np.random.default_rng(99)
    for k in range(14):
        source = rng if changed_from is None or k < changed_from else other
        times = np.sort(source.integers(0, LENGTH, 30)) if k else np.arange(0, 90, 3)
        pairs = source.integers(0, NODES, (2, 30))
        rows += [f"{s} {d} {1_000_000_007 + k * LENGTH + t}\n" for s, d, t in zip(*pairs, times, strict=True)]
    (folder / "collegemsg").mkdir(parents=True)
    with gzip.open(folder / "collegemsg" / "CollegeMsg.txt.gz", "wt") as file:
        file.writelines(rows)
    return folder


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_ranking, "CUTS", {**CUTS, "collegemsg": Cut(LENGTH, 7, 2, 14)})


def test_protocols_are_registered_with_published_rows() -> None:
    for name, rows in (("evolvegcn", 12), ("roland-fixed", 6), ("roland-live", 16)):
        protocol = find_protocol(name)
        assert sum(len(protocol.published(data)) for data in protocol.data_sets) == rows
        with pytest.raises(UnknownNameError):
            protocol.run(ProtocolRequest(model="rolland"))


@pytest.mark.usefixtures("_short")
def test_snapshots_begin_with_the_first_event(tmp_path: Path) -> None:
    graph = EVOLVEGCN.read(ProtocolRequest(data="collegemsg", data_dir=write_events(tmp_path)))
    assert len(graph) == 14
    assert graph.times[0] == "1000000007"
    assert graph.directed
    assert not graph.weighted
    boundaries = EveryFromFirst(10).between(3.7, 25, "number")
    assert boundaries.starts == [3.0, 13.0, 23.0]


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("method", ["gcn", "gcn+pair-features", "gcn+pair-features+live"])
def test_every_edge_of_the_test_part_is_ranked(tmp_path: Path, method: str) -> None:
    stages: set[str] = set()
    request = ProtocolRequest(
        data="collegemsg",
        model=method,
        seeds=2,
        first_seed=3,
        epochs=1,
        data_dir=write_events(tmp_path),
        on_stage=lambda stage, done, total: stages.add(stage),
    )
    result = ROLAND_FIXED.run(request)
    assert (result.seeds, result.coverage, result.method) == ((3, 4), 1.0, method)
    assert all(0 < value < 1 for value in (*result.validation, *result.test))
    assert any("seed 4" in stage for stage in stages)
    assert ROLAND_FIXED.run(request).test == pytest.approx(result.test)


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("method", ["gcn+pair-features", "gcn+pair-features+live"])
def test_snapshots_after_the_validation_part_change_no_validation_value(tmp_path: Path, method: str) -> None:
    found = []
    for changed_from in (None, 10):  # 7 + 2 snapshots are read to train and validate, whose targets end with snapshot 9
        folder = write_events(tmp_path / str(changed_from), changed_from=changed_from)
        request = ProtocolRequest(data="collegemsg", model=method, seeds=1, epochs=1, data_dir=folder)
        found.append(ROLAND_FIXED.run(request))
    assert found[0].validation == found[1].validation
    assert found[0].test != found[1].test


@pytest.mark.usefixtures("_short")
def test_baselines_read_edges_without_direction(tmp_path: Path) -> None:
    request = ProtocolRequest(data="collegemsg", data_dir=write_events(tmp_path))
    found = {each.method: each for each in EVOLVEGCN.run_baselines(request)}
    assert set(found) == {"last-snapshot", "edgebank", "popularity", "most-recent-first"}
    assert all(each.coverage == 1 and 0 < each.test[0] < 1 for each in found.values())


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize(("method", "signature"), [("evolvegcn-o", 256), ("gcn", 32), ("gcn+pair-features", 0)])
def test_a_result_names_all_settings_of_its_method(tmp_path: Path, method: str, signature: int) -> None:
    request = ProtocolRequest(data="collegemsg", model=method, seeds=1, epochs=1, data_dir=write_events(tmp_path))
    settings = EVOLVEGCN.run(request).settings
    assert (settings["signature"], settings["epochs"]) == (signature, 1)
    assert settings.get("skip", False) == (method == "evolvegcn-o")


def test_fewer_positives_are_trained_on_where_snapshots_are_large() -> None:
    sizes = {data: LinkRanking(**evolvegcn_o(data).task).max_pairs for data in EVOLVEGCN.data_sets}
    assert sizes == {"bitcoin_otc": 5_000, "bitcoin_alpha": 5_000, "collegemsg": 5_000, "as733": 1_000}


def test_published_models_read_all_nodes_in_every_snapshot(tmp_path: Path) -> None:
    graph: DynamicGraph = as_published(
        LIVE_UPDATE.read(ProtocolRequest(data="collegemsg", data_dir=write_events(tmp_path)))
    )
    assert not graph.directed
    assert all(graph[t].num_nodes == graph.num_nodes for t in range(len(graph)))


def write_weeks(folder: Path) -> Path:
    rng = np.random.default_rng(1)
    (folder / "collegemsg").mkdir(parents=True)
    week = 7 * 24 * 3600
    with gzip.open(folder / "collegemsg" / "CollegeMsg.txt.gz", "wt") as file:
        for k in (0, 1, 2, 3, 5, 6, 7, 8):  # a week without messages
            for s, d in rng.integers(0, NODES, (25, 2)):
                file.write(f"{s} {d} {1_082_332_800 + k * week}\n")
    return folder


def test_live_update_scores_every_week_before_it_is_trained_on(tmp_path: Path) -> None:
    request = ProtocolRequest(
        data="collegemsg", model="roland+pair-features", seeds=1, epochs=1, data_dir=write_weeks(tmp_path)
    )
    result = LIVE_UPDATE.run(request)
    assert (result.settings["snapshots"], result.settings["scored"], result.coverage) == (8, 4, 1.0)
    assert 0 < result.test[0] < 1
    rules = {"last-snapshot": "last snapshot", "most-recent-first": "most recent"}
    baselines = {each.method: each for each in LIVE_UPDATE.run_baselines(request)}
    assert set(baselines) == {"edgebank", "popularity", *rules}
    for name, each in baselines.items():
        assert each.test == pytest.approx((result.settings["rules"][rules.get(name, name)],))


@pytest.mark.skipif(not (SHARED / "bitcoin_otc").exists(), reason="needs the data sets below STROBE_DATA")
@pytest.mark.parametrize("data", ["bitcoin_otc", "bitcoin_alpha", "collegemsg"])
def test_parts_have_the_published_numbers_of_snapshots(data: str) -> None:
    request = ProtocolRequest(data=data, data_dir=SHARED)
    graph, cut = EVOLVEGCN.read(request), CUTS[data]
    assert len(graph) == cut.snapshots
    split = EVOLVEGCN.task(request, with_features=False).bind(graph).split
    published = {"bitcoin_otc": (95, 14, 28), "bitcoin_alpha": (95, 13, 28), "collegemsg": (62, 9, 17)}
    assert (len(split.train), len(split.validation), len(split.test)) == published[data]
