from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import strobe
from strobe.api import open_run
from strobe.batching import Trapezoid
from strobe.batching.trapezoid import Decay
from strobe.engine import Run
from strobe.engine.records.run_directory import TRAPEZOID
from strobe.engine.sources.decay import (
    RowWidths,
    StepCost,
    WindowCost,
    measure_row_widths,
    snapshot_cost,
    window_cost,
)
from strobe.engine.sources.sliding import SlidingWindowSource
from strobe.exchange import Exchange, Halo, NoTimeExchange, Overlapped, StructureExchange
from strobe.graph import DynamicGraph
from strobe.models import MODELS
from strobe.presets import preset
from strobe.report.charts.window_cost import window_cost_svg
from strobe.report.summary import run_summary
from strobe.schedule import RandomSplit
from strobe.view.data.permuted import NodeOrder
from tests.engine.sources.test_sliding import Dealt, sliding
from tests.support.runs import short_graph
from tests.support.trainer import Trainer


def _decay(run: Run) -> Decay:
    batching = run.job.plan.batching
    assert isinstance(batching, Trapezoid)
    return batching.decay


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return short_graph()


def texts(chart: str | None) -> list[str]:
    assert chart is not None
    return [each.text or "" for each in ElementTree.fromstring(chart).iter() if each.tag.endswith("text")]


def test_snapshot_cost_equals_a_count_by_hand() -> None:
    """Nodes 0 to 4 are on ranks 0, 0, 0, 1, 1; they stay in the order 0, 3, 1, 4, 2, a chunk each."""
    arcs = np.array([[0, 1], [0, 3], [1, 3], [3, 0], [0, 4], [4, 2], [2, 2], [3, 4]])
    snapshot = strobe.from_edges([arcs.T], num_nodes=5, directed=True)[0]
    order = NodeOrder(0, np.array([0, 0, 0, 1, 1]), np.array([0, 2, 4, 1, 3]))
    width = RowWidths(features=2, state=3, embedding=4, item_bytes=8, sent_columns={"in": [5, 1], "out": [7]})
    # Of 5 chunks all: 0 → 3, 1 → 3, 3 → 0, 0 → 4 and 4 → 2 lead from rank to rank. Rank 1 reads 0 and 1, rank 0 reads
    # 3 and 4: 4 rows along arcs. Against them rank 0 reads 3 and 4 (from 0, 1), rank 1 reads 0 (from 3) and 2 (from 4).
    assert snapshot_cost(snapshot, order, 5, width) == StepCost(
        5, 8, 2 * (4 * 2 + 4), 2 * 8 * (4 * 6 + 4 * 7), 5 * 9 * 8
    )
    # Of 3 chunks nodes 0, 3, 1: arcs 0 → 1, 0 → 3, 1 → 3, 3 → 0. Rank 1 reads 0 and 1, rank 0 reads 3; and 3, and 0.
    assert snapshot_cost(snapshot, order, 3, width) == StepCost(
        3, 4, 2 * (3 * 2 + 2), 2 * 8 * (3 * 6 + 2 * 7), 3 * 9 * 8
    )
    assert snapshot_cost(snapshot, order, 1, width) == StepCost(1, 0, 0, 0, 72)
    assert snapshot_cost(snapshot, order, 0, width) == StepCost()


@pytest.mark.parametrize(
    ("model", "structure"),
    [(name, (Halo(), Overlapped(inner=Halo()))[k % 2]) for k, name in enumerate(MODELS)],
    ids=str,
)
def test_snapshot_costs_equal_the_ledger(graph: DynamicGraph, model: str, structure: StructureExchange) -> None:
    plan = replace(sliding(Trapezoid(full=1, decayed=3, min_keep=0.3)), placement=Dealt(), schedule=RandomSplit())
    plan = replace(plan, exchange=Exchange(structure=structure, time=NoTimeExchange()))
    run = Trainer(graph, model, "regression").train(plan, 3, epochs=1)[0]
    windows, width = SlidingWindowSource(run.job, _decay(run)), measure_row_widths(run.job)
    order, kept = windows.node_order(0), windows.decay.num_chunks_by_age(windows.num_chunks)
    total = StepCost.total(
        snapshot_cost(graph[s], order, kept[t - s], width)
        for t in run.problem.split.train
        for s in windows.decay.times(t, 0)
    )
    ledgers, ways = run.history[0]["ranks"], ("forward/halo", "backward/halo")
    assert total.cells == sum(ledger["cells"] for ledger in ledgers)
    assert total.rows_sent == sum(ledger["rows_sent"].get(way, 0) for ledger in ledgers for way in ways)
    assert total.bytes_sent == sum(ledger["sent"].get(way, 0) for ledger in ledgers for way in ways)


def test_window_cost_is_of_the_last_full_window(graph: DynamicGraph) -> None:
    plan = sliding(Trapezoid(full=2, decayed=2, min_keep=0.2), chunks=8)
    (run,) = Trainer(graph, "tgcn", "regression").train(plan, 1, epochs=1)
    found = window_cost(run.job, SlidingWindowSource(run.job, _decay(run)))
    assert found is not None
    train = run.problem.split.train
    assert found.times == [str(graph.times[t]) for t in train[-4:]]
    assert [each.cells for each in found.without_decay] == [graph[t].num_nodes for t in train[-4:]]
    assert [each.arcs for each in found.without_decay] == [graph[t].num_arcs for t in train[-4:]]
    assert found.computed[2:] == found.without_decay[2:]
    assert all(
        part.cells < all_of_it.cells for part, all_of_it in zip(found.computed[:2], found.without_decay, strict=False)
    )
    assert found.width == RowWidths(2, 4, 4, 8, {})
    assert all(each.bytes_resident == each.cells * 10 * 8 for each in found.computed)


def made_up(num_ranks: int = 2, full: int = 1) -> WindowCost:
    computed = [StepCost(12, 34, 56, 7_000, 8_000), StepCost(1_000, 5_000, 600, 70_000, 80_000)]
    whole = [StepCost(1_200, 6_800, 700, 80_000, 96_000), computed[1]]
    width = RowWidths(2, 3, 4, 4, {"in": [8]})
    return WindowCost(Decay(full, 2 - full, 0.01), ["May", "June <&>"], computed, whole, width, num_ranks)


def test_chart_has_the_newest_snapshot_first_and_the_sums_below() -> None:
    found = texts(window_cost_svg(made_up()))
    assert found[0] == "A step computes 1 snapshot whole and 1 decayed to 1.0%"
    newest, oldest, sums, whole = (found.index(text) for text in ("June <&>", "May", "a step", "without decay"))
    assert found[newest : newest + 7] == ["June <&>", "100%", "1,000", "5,000", "600", "68.4 KiB", "78.1 KiB"]
    assert found[oldest : oldest + 7] == ["May", "1.0%", "12", "34", "56", "6.8 KiB", "7.8 KiB"]
    assert found[sums : sums + 6] == ["a step", "1,012", "5,034", "656", "75.2 KiB", "85.9 KiB"]
    assert found[whole + 1 : whole + 6] == ["2,200", "11,800", "1,300", "146.5 KiB", "171.9 KiB"]
    assert found[whole + 7 : whole + 12] == ["46%", "43%", "50%", "51%", "50%"]


def test_chart_of_one_rank_has_no_communication() -> None:
    assert "sent" in texts(window_cost_svg(made_up()))
    assert not any("sent" in text for text in texts(window_cost_svg(made_up(num_ranks=1))))


def test_bar_length_is_the_computed_share() -> None:
    chart = window_cost_svg(made_up())
    assert chart is not None
    groups = [each for each in ElementTree.fromstring(chart) if each.tag.endswith("}g")]
    bars = [[float(rect.attrib["width"]) for rect in group if rect.tag.endswith("rect")] for group in groups]
    assert [part / room for room, part in bars] == pytest.approx([1.0, 0.01], abs=1e-3)


def test_run_without_decay_has_no_window_cost(graph: DynamicGraph) -> None:
    assert window_cost_svg(None) is None
    (run,) = Trainer(graph, "tgcn", "regression").train(preset("metis"), 1, epochs=1)
    assert run.window is None
    assert "a step computes" not in run_summary(run.to_json())


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.usefixtures("ranks_are_threads")
def test_run_writes_the_chart_and_summarizes_the_window(graph: DynamicGraph, ranks: int, tmp_path: Path) -> None:
    plan = preset("flare", full=2, decayed=2, min_keep=0.2, chunks=8)
    run = strobe.train(graph, "dcrnn", "regression", plan=plan, ranks=ranks, epochs=1, threads=1, out=tmp_path / "run")
    found = texts((tmp_path / "run" / TRAPEZOID).read_text())
    assert found[0] == "A step computes 2 snapshots whole and 2 decayed to 20%"
    assert ("sent" in found) == (ranks == 2)
    window = _of(run)
    share = f"{window['computed']['cells'] / window['without_decay']['cells']:.0%}"
    said = f"a step computes 2 snapshots whole and 2 decayed to 20%: {share} of the rows of whole windows"
    assert said in " ".join(run.summary().split())
    assert max(map(len, run.summary().splitlines())) <= 80
    assert open_run(tmp_path / "run", graph=graph).window == window
    assert f"{window['without_decay']['cells']:,}" in found
    assert window["without_decay"]["cells"] == sum(graph[t].num_nodes for t in run.problem.split.train[-4:])


def _of(run: Run) -> dict[str, dict[str, int]]:
    assert run.window is not None
    return run.window


def test_summary_names_a_tuned_decay(graph: DynamicGraph) -> None:
    plan = sliding(Trapezoid(full=2, decayed=2, min_keep=0.2), chunks=8)
    (run,) = Trainer(graph, "tgcn", "regression").train(plan, 1, epochs=1)
    windows = SlidingWindowSource(run.job, _decay(run))
    windows.decay = Decay(3, 1, 0.2)
    found = window_cost(run.job, windows)
    assert found is not None
    run.window = found.to_json()
    summary = " ".join(run_summary(run.to_json()).split())
    assert "a step computes 3 snapshots whole and 1 decayed to 20%, as tuned: " in summary
