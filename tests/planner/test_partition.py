"""What a partition would cost is what training counts."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from strobe.engine.launch.processes import OutputConfig
from strobe.engine.model_costs import TRACED
from strobe.engine.progress import Progress
from strobe.engine.trace import trace_view_calls
from strobe.engine.train import train_on_rank
from strobe.errors import OptionError
from strobe.exchange import Exchange, Halo, NoExchange, NoTimeExchange, Relay, Shuffle
from strobe.exchange.dry_run import FakeComm
from strobe.graph import from_edges
from strobe.models import MODELS, make_model
from strobe.placement import BySnapshot, Chunks, Hash, Placement, Replicated, TimeBlocks
from strobe.placement.model_costs import CELL_LOAD
from strobe.plan import Plan, PlanError
from strobe.planner.partition import PartitionedJob, PartitionEstimate, estimate_partition, log2_histogram, repeat_calls
from tests.support.planner_jobs import job_of, request_of
from tests.support.ranks import as_threads
from tests.support.runs import small_graph

KINDS = ("halo", "relay", "shuffle", "carry", "state")


def estimate(placement: Placement, ranks: int = 2, model: str = "wd-gcn", **more: Any) -> PartitionEstimate:
    options: dict[str, Any] = {"threads": 1, "device": "cpu", "model_options": {"hidden": 4, "layers": 2}, **more}
    return estimate_partition(small_graph(), model, "regression", placement=placement, ranks=ranks, **options)


def test_bytes_are_those_that_real_ranks_count() -> None:
    """As of every model and preset in ``comm/test_volume.py``."""
    plan = Plan(placement=BySnapshot(), exchange=Exchange(structure=Halo(), time=Relay()))
    request = request_of("wd-gcn", plan=plan, options={"layers": 2}, epochs=1, evaluate_every=2, window=3)
    run = as_threads(lambda comm: train_on_rank(request, OutputConfig(), Progress(), comm), 2)[0]
    found = estimate(BySnapshot(), 2, window=3, exchange=plan.exchange)
    for rank, share in enumerate(found.rank_costs):
        counted = Counter[str]()
        for key, number in run.ranks[rank]["sent"].items():
            phase, _, kind = key.partition("/")
            counted[kind] += number if phase in ("forward", "backward") and kind in KINDS else 0
        assert share.sent == dict(+counted)
        assert (share.cells, share.arcs) == (run.ranks[rank]["cells"], run.ranks[rank]["arcs"])
        assert share.received == found.rank_costs[1 - rank].sent  # of two, one hears what the other says
    assert {"relay", "carry"} <= set().union(*(share.sent for share in found.rank_costs))


@pytest.mark.parametrize("name", MODELS)
def test_two_snapshots_tell_how_a_model_uses_many(name: str) -> None:
    torch.manual_seed(0)
    graph, model = small_graph(), make_model(name, 2, hidden=4)
    for length in (1, 2, 5):
        expected = trace_view_calls(model, graph[:length])
        assert sorted(map(str, repeat_calls(trace_view_calls(model, graph[:TRACED]), length))) == sorted(
            map(str, expected)
        )


@pytest.mark.parametrize("placement", [Chunks(), TimeBlocks(), Hash()], ids=lambda placement: placement.name)
def test_shares_add_up_to_the_graph(placement: Placement) -> None:
    graph, found = small_graph(), estimate(placement, 3)
    first, last = found.parts["training"]
    assert (first, found.num_training) == (0, last)
    whole = [snapshot.num_nodes for snapshot in graph]
    assert [sum(row) for row in found.cells_at] == whole
    assert sum(share.cells for share in found.rank_costs) == sum(whole[:last])
    assert sum(share.arcs for share in found.rank_costs) == graph[:last].num_arcs
    for share in found.rank_costs:
        assert share.load == CELL_LOAD * share.cells + share.arcs
        assert share.sent_bytes == share.structure_bytes + share.time_bytes == sum(share.sent.values())
    assert found.sent_bytes == sum(share.sent_bytes for share in found.rank_costs) > 0
    assert sum(found.relative_loads) == pytest.approx(3)
    assert found.imbalance == pytest.approx(max(found.relative_loads) / min(found.relative_loads))


@pytest.mark.parametrize("placement", [BySnapshot(), Hash()], ids=lambda placement: placement.name)
def test_a_rank_has_every_sequence_of_which_it_has_a_cell_once(placement: Placement) -> None:
    given = job_of("wd-gcn", plan=Plan(placement=placement), comm=FakeComm(0, 3))
    job = PartitionedJob(given, Progress())
    has: list[set[int]] = [set(), set(), set()]
    for t in job.train:
        for node, owner in zip(job.graph[t].nodes.tolist(), job.partition.owners(job.graph, t).tolist(), strict=True):
            has[owner].add(node)
    assert job._sizes().sequences.tolist() == [len(nodes) for nodes in has]


def test_chunks_are_counted_on_the_rank_that_has_them() -> None:
    found = estimate(Chunks(), 2)
    chunks = [share.chunks for share in found.rank_costs]
    assert all(each is not None and each.num_chunks > 0 for each in chunks)
    assert sum(each.num_chunks for each in chunks if each) == sum(found.chunk_counts)
    for share in found.rank_costs:
        assert share.chunks is not None
        assert 1 <= share.chunks.median_cells <= share.chunks.largest_cells <= share.cells
    others = estimate(Hash(), 2)
    assert others.chunk_counts == ()
    assert {share.chunks for share in others.rank_costs} == {None}


def test_sizes_are_counted_by_powers_of_two() -> None:
    assert log2_histogram(np.array([1, 2, 3, 4, 7, 8, 1023, 1024])) == (1, 2, 2, 1, 0, 0, 0, 0, 0, 1, 1)
    assert log2_histogram(np.array([2**20 - 1, 2**29 - 1]))[19] == 1
    assert len(log2_histogram(np.array([2**29 - 1]))) == 29
    assert log2_histogram(np.empty(0, np.int64)) == ()


def test_the_default_stands_beside_every_other_placement() -> None:
    default, other = estimate(TimeBlocks()), estimate(Hash())
    assert default.is_default
    assert not other.is_default
    assert (other.default_bytes, other.default_imbalance) == (default.sent_bytes, default.imbalance)
    assert (default.default_bytes, default.default_imbalance) == (default.sent_bytes, default.imbalance)
    assert other.default_bytes != other.sent_bytes
    assert not estimate(TimeBlocks(), exchange=Exchange(structure=Halo(), time=Shuffle())).is_default


def test_one_rank_has_everything_and_sends_nothing() -> None:
    found = estimate(Chunks(), 1)
    (share,) = found.rank_costs
    assert (share.sent, share.received, found.imbalance, found.chunk_counts) == ({}, {}, 1.0, ())
    assert found.default_bytes == 0


def test_empty_ranks_have_no_imbalance() -> None:
    edges = [np.array([[0], [1]])] * 4
    tiny = from_edges(edges, num_nodes=2, x=np.ones((2, 2), np.float32))
    found = estimate_partition(tiny, "wd-gcn", "link-prediction", placement=Hash(), ranks=5, device="cpu", threads=1)
    assert found.imbalance is None
    assert found.is_edge_level
    assert sum(share.cells == 0 for share in found.rank_costs) >= 3


def test_a_partition_survives_json() -> None:
    found = estimate(Chunks(), 2)
    values = found.to_json()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["placement"] == Chunks().to_json()
    assert [rank["sent"] for rank in values["ranks"]] == [share.sent for share in found.rank_costs]
    assert values["default"] == {"sent_bytes": found.default_bytes, "imbalance": found.default_imbalance}


def test_invalid_options_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 rank, not 0"):
        estimate(Hash(), 0)
    with pytest.raises(OptionError, match="leave recompute out"):
        estimate(Hash(), recompute=2)
    with pytest.raises(PlanError, match="replicated needs batches per rank"):
        estimate(Replicated())
    with pytest.raises(PlanError, match="needs whole snapshots"):
        estimate(Hash(), exchange=Exchange(structure=NoExchange(), time=NoTimeExchange()))
