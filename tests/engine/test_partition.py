"""What a partition would cost is what training counts."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from strobe.comm import Comm
from strobe.engine.job import Given, choose
from strobe.engine.launch import Place
from strobe.engine.partition import Partition, partition
from strobe.engine.partition_shares import PlacedJob, calls_over, powers
from strobe.engine.partition_svg import OWNERS, partition_svg
from strobe.engine.predicted import Imagined
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.trace import watch
from strobe.engine.train import train_here
from strobe.engine.work import WATCHED
from strobe.errors import OptionError
from strobe.exchange import Exchange, Halo, Nothing, Relay, Shuffle, Stay
from strobe.graph import from_edges
from strobe.models import MODELS, make_model
from strobe.placement import BySnapshot, Chunks, Hash, Placement, Replicated, TimeBlocks
from strobe.placement.work import CELL_LOAD
from strobe.plan import Plan, PlanError
from tests.engine.runs import small_graph
from tests.ranks import as_threads

KINDS = ("halo", "relay", "shuffle", "carry", "state")


def options_of(model: str) -> dict[str, Any]:
    """Such that rows travel along edges: what the first convolution reads every rank finds in the graph."""
    return {"hidden": 4, "layers": 2} if model == "wd-gcn" else {"hidden": 4}


def asked(placement: Placement, ranks: int = 2, model: str = "wd-gcn", **more: Any) -> Partition:
    options: dict[str, Any] = {"threads": 1, "device": "cpu", "model_options": options_of(model), **more}
    return partition(small_graph(), model, "regression", placement=placement, ranks=ranks, **options)


def trained(placement: Placement, model: str, window: int | None, exchange: Exchange) -> Run:
    """An epoch of two ranks."""
    settings: dict[str, Any] = {"epochs": 1, "evaluate_every": 2, "threads": 1, "device": "cpu", "window": window}
    plan = Plan(placement=placement, exchange=exchange)
    given = Given(small_graph(), model, "regression", options_of(model), None, settings, None, plan)

    def work(comm: Comm) -> Run:
        return train_here(given, Place(), Progress(), comm)

    return as_threads(work, 2)[0]


def counted_bytes(run: Run, rank: int) -> dict[str, int]:
    """What a rank's ledger has sent in training, there and back, by kind."""
    found: dict[str, int] = {}
    for key, number in run.ranks[rank]["sent"].items():
        phase, _, kind = key.partition("/")
        if phase in ("forward", "backward") and kind in KINDS:
            found[kind] = found.get(kind, 0) + number
    return found


def texts(picture: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("model", "placement", "window", "time", "kinds"),
    [
        ("wd-gcn", Chunks(), None, Relay(), {"halo"}),
        ("wd-gcn", Chunks(), 3, Relay(), {"halo"}),
        ("wd-gcn", BySnapshot(), 3, Relay(), {"relay", "carry"}),
        ("wd-gcn", BySnapshot(), 3, Shuffle(), {"shuffle"}),
        ("dcrnn", Chunks(), 3, Relay(), {"halo"}),
        ("dcrnn", BySnapshot(), None, Relay(), {"state"}),
        ("dysat", BySnapshot(), None, Relay(), {"shuffle"}),
    ],
)
def test_bytes_are_those_that_real_ranks_count(
    model: str, placement: Placement, window: int | None, time: Any, kinds: set[str]
) -> None:
    exchange = Exchange(structure=Halo(), time=time)
    run = trained(placement, model, window, exchange)
    found = asked(placement, 2, model, window=window, exchange=exchange)
    assert kinds <= set().union(*(share.sent for share in found.shares))
    for rank, share in enumerate(found.shares):
        assert share.sent == counted_bytes(run, rank)
        assert (share.cells, share.arcs) == (run.ranks[rank]["cells"], run.ranks[rank]["arcs"])
        assert share.received == found.shares[1 - rank].sent  # of two, one hears what the other says


@pytest.mark.parametrize("name", MODELS)
def test_two_snapshots_tell_how_a_model_uses_many(name: str) -> None:
    torch.manual_seed(0)
    graph, model = small_graph(), make_model(name, 2, hidden=4)
    for length in (1, 2, 5):
        expected = watch(model, graph[:length])
        assert sorted(map(str, calls_over(watch(model, graph[:WATCHED]), length))) == sorted(map(str, expected))


@pytest.mark.parametrize("placement", [Chunks(), TimeBlocks(), Hash()], ids=lambda placement: placement.name)
def test_shares_add_up_to_the_graph(placement: Placement) -> None:
    graph, found = small_graph(), asked(placement, 3)
    first, last = found.parts["training"]
    assert (first, found.num_training) == (0, last)
    whole = [snapshot.num_nodes for snapshot in graph]
    assert [sum(row) for row in found.cells_at] == whole
    assert sum(share.cells for share in found.shares) == sum(whole[:last])
    assert sum(share.arcs for share in found.shares) == graph[:last].num_arcs
    for share in found.shares:
        assert share.load == CELL_LOAD * share.cells + share.arcs
        assert share.sent_bytes == share.bytes_along_edges + share.bytes_in_time == sum(share.sent.values())
    assert found.sent_bytes == sum(share.sent_bytes for share in found.shares) > 0
    assert sum(found.relative_loads) == pytest.approx(3)
    assert found.load == pytest.approx(max(found.relative_loads) / min(found.relative_loads))


@pytest.mark.parametrize("placement", [BySnapshot(), Hash()], ids=lambda placement: placement.name)
def test_a_rank_has_every_sequence_of_which_it_has_a_cell_once(placement: Placement) -> None:
    settings: dict[str, Any] = {"threads": 1, "device": "cpu"}
    given = Given(small_graph(), "wd-gcn", "regression", {"hidden": 4}, None, settings, None, Plan(placement=placement))
    job = PlacedJob(choose(given, None, Progress(), Imagined(0, 3)), Progress())
    has: list[set[int]] = [set(), set(), set()]
    for t in job.train:
        for node, owner in zip(job.graph[t].nodes.tolist(), job.placed.owners(job.graph, t).tolist(), strict=True):
            has[owner].add(node)
    assert job._sizes().sequences.tolist() == [len(nodes) for nodes in has]


def test_chunks_are_counted_on_the_rank_that_has_them() -> None:
    found = asked(Chunks(), 2)
    chunks = [share.chunks for share in found.shares]
    assert all(each is not None and each.num_chunks > 0 for each in chunks)
    assert sum(each.num_chunks for each in chunks if each) == sum(found.chunk_counts)
    for share in found.shares:
        assert share.chunks is not None
        assert 1 <= share.chunks.median_cells <= share.chunks.largest_cells <= share.cells
    others = asked(Hash(), 2)
    assert others.chunk_counts == ()
    assert {share.chunks for share in others.shares} == {None}


def test_sizes_are_counted_by_powers_of_two() -> None:
    assert powers(np.array([1, 2, 3, 4, 7, 8, 1023, 1024])) == (1, 2, 2, 1, 0, 0, 0, 0, 0, 1, 1)
    assert powers(np.array([2**20 - 1, 2**29 - 1]))[19] == 1
    assert len(powers(np.array([2**29 - 1]))) == 29
    assert powers(np.empty(0, np.int64)) == ()


def test_the_default_stands_beside_every_other_placement() -> None:
    default, other = asked(TimeBlocks()), asked(Hash())
    assert default.is_default
    assert not other.is_default
    assert (other.default_bytes, other.default_load) == (default.sent_bytes, default.load)
    assert (default.default_bytes, default.default_load) == (default.sent_bytes, default.load)
    assert other.default_bytes != other.sent_bytes
    assert not asked(TimeBlocks(), exchange=Exchange(structure=Halo(), time=Shuffle())).is_default


def test_twice_as_wide_numbers_are_twice_as_many_bytes() -> None:
    single, double = asked(Chunks()), asked(Chunks(), precision="float64")
    assert double.sent_bytes == 2 * single.sent_bytes


def test_one_rank_has_everything_and_sends_nothing() -> None:
    found = asked(Chunks(), 1)
    (share,) = found.shares
    assert (share.sent, share.received, found.load, found.chunk_counts) == ({}, {}, 1.0, ())
    assert found.default_bytes == 0


def test_ranks_that_have_nothing_are_told_of() -> None:
    edges = [np.array([[0], [1]])] * 4
    tiny = from_edges(edges, num_nodes=2, x=np.ones((2, 2), np.float32))
    found = partition(tiny, "wd-gcn", "link-prediction", placement=Hash(), ranks=5, device="cpu", threads=1)
    assert found.load is None
    assert found.asks_pairs
    assert sum(share.cells == 0 for share in found.shares) >= 3
    assert ElementTree.fromstring(partition_svg(found)).tag.endswith("svg")


def test_a_partition_survives_json() -> None:
    found = asked(Chunks(), 2)
    told = found.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["placement"] == Chunks().to_json()
    assert [rank["sent"] for rank in told["ranks"]] == [share.sent for share in found.shares]
    assert told["default"] == {"sent_bytes": found.default_bytes, "load": found.default_load}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 rank, not 0"):
        asked(Hash(), 0)
    with pytest.raises(OptionError, match="leave recompute out"):
        asked(Hash(), recompute=2)
    with pytest.raises(PlanError, match="replicated needs batches per rank"):
        asked(Replicated())
    with pytest.raises(PlanError, match="needs whole snapshots"):
        asked(Hash(), exchange=Exchange(structure=Nothing(), time=Stay()))


def test_progress_hears_of_every_stage() -> None:
    stages: list[str] = []

    class Listening(Progress):
        def stage(self, what: str, done: int, total: int | None) -> None:
            stages.append(what)

    asked(Hash(), progress=Listening())
    assert [what for k, what in enumerate(stages) if what not in stages[:k]][-4:] == [
        "placing cells by hash",
        "counting bytes of hash",
        "placing cells by time-blocks",
        "counting bytes of time-blocks",
    ]


def test_the_picture_has_a_colour_for_every_rank() -> None:
    found = asked(Chunks(), 3)
    picture = partition_svg(found)
    shown = texts(picture)
    assert {"rank 0", "rank 1", "rank 2", "training", "cells over time, by owner"} <= set(shown)
    assert any("chunks of training" in text for text in shown)
    assert all(colour in picture for colour in OWNERS[:3])
    assert OWNERS[3] not in picture
    assert not any("chunks of training" in text for text in texts(partition_svg(asked(Hash(), 3))))


def test_colours_of_many_ranks_begin_again_and_the_legend_says_so() -> None:
    shown = texts(partition_svg(asked(Hash(), 50)))
    assert {"0, 12, …, 48", "2, 14, …, 38", "11, 23, …, 47"} <= set(shown)
