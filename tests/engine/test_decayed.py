"""What a step computes, sends and holds of a window that decays: as counted by hand, and as the ledger has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import strobe
from strobe.batching import Trapezoid
from strobe.batching.decay import Decay
from strobe.engine import Run, open_run
from strobe.engine.decayed import Amount, Decayed, Width, amount, decayed, width_of
from strobe.engine.decayed_svg import decayed_svg
from strobe.engine.record import TRAPEZOID
from strobe.engine.sliding import Sliding
from strobe.exchange import Exchange, Halo, Overlapped, Stay, StructureExchange
from strobe.graph import DynamicGraph
from strobe.models import MODELS
from strobe.presets import preset
from strobe.schedule import RandomSplit
from strobe.view.ordered import Order
from tests.engine.runs import small_graph
from tests.engine.test_sliding import Dealt, sliding
from tests.engine.trainer import Trainer


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return small_graph()


def texts(picture: str | None) -> list[str]:
    assert picture is not None
    return [each.text or "" for each in ElementTree.fromstring(picture).iter() if each.tag.endswith("text")]


def test_amounts_are_as_counted_by_hand() -> None:
    """Nodes 0 to 4 are on ranks 0, 0, 0, 1, 1; they stay in the order 0, 3, 1, 4, 2, a chunk each."""
    arcs = np.array([[0, 1], [0, 3], [1, 3], [3, 0], [0, 4], [4, 2], [2, 2], [3, 4]])
    snapshot = strobe.from_edges([arcs.T], num_nodes=5, directed=True)[0]
    order = Order(0, np.array([0, 0, 0, 1, 1]), np.array([0, 2, 4, 1, 3]))
    width = Width(features=2, state=3, embedding=4, item_bytes=8, sent={"in": [5, 1], "out": [7]})
    # Of 5 chunks all: 0 → 3, 1 → 3, 3 → 0, 0 → 4 and 4 → 2 lead from rank to rank. Rank 1 reads 0 and 1, rank 0 reads
    # 3 and 4: 4 rows along arcs. Against them rank 0 reads 3 and 4 (from 0, 1), rank 1 reads 0 (from 3) and 2 (from 4).
    assert amount(snapshot, order, 5, width) == Amount(5, 8, 2 * (4 * 2 + 4), 2 * 8 * (4 * 6 + 4 * 7), 5 * 9 * 8)
    # Of 3 chunks nodes 0, 3, 1: arcs 0 → 1, 0 → 3, 1 → 3, 3 → 0. Rank 1 reads 0 and 1, rank 0 reads 3; and 3, and 0.
    assert amount(snapshot, order, 3, width) == Amount(3, 4, 2 * (3 * 2 + 2), 2 * 8 * (3 * 6 + 2 * 7), 3 * 9 * 8)
    assert amount(snapshot, order, 1, width) == Amount(1, 0, 0, 0, 72)
    assert amount(snapshot, order, 0, width) == Amount()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("structure", [Halo(), Overlapped(inner=Halo())], ids=lambda each: each.name)
def test_what_is_said_to_travel_is_what_the_ledger_counts(
    graph: DynamicGraph, model: str, structure: StructureExchange
) -> None:
    plan = replace(sliding(Trapezoid(full=1, decayed=3, keep=0.3)), placement=Dealt(), schedule=RandomSplit())
    plan = replace(plan, exchange=Exchange(structure=structure, time=Stay()))
    run = Trainer(graph, model, "regression").train(plan, 3, epochs=1)[0]
    windows, width = Sliding(run.job), width_of(run.job)
    order, kept = windows.order(0), windows.decay.kept(windows.num_chunks)
    total = Amount.of(
        amount(graph[s], order, kept[t - s], width) for t in run.problem.split.train for s in windows.decay.times(t, 0)
    )
    ledgers, ways = run.history[0]["ranks"], ("forward/halo", "backward/halo")
    assert total.cells == sum(ledger["cells"] for ledger in ledgers)
    assert total.rows_sent == sum(ledger["rows_sent"].get(way, 0) for ledger in ledgers for way in ways)
    assert total.bytes_sent == sum(ledger["sent"].get(way, 0) for ledger in ledgers for way in ways)


def test_the_window_is_the_last_full_one(graph: DynamicGraph) -> None:
    plan = sliding(Trapezoid(full=2, decayed=2, keep=0.2), chunks=8)
    (run,) = Trainer(graph, "tgcn", "regression").train(plan, 1, epochs=1)
    found = decayed(run.job, Sliding(run.job))
    assert found is not None
    train = run.problem.split.train
    assert found.times == [str(graph.times[t]) for t in train[-4:]]
    assert [each.cells for each in found.whole] == [graph[t].num_nodes for t in train[-4:]]
    assert [each.arcs for each in found.whole] == [graph[t].num_arcs for t in train[-4:]]
    assert found.computed[2:] == found.whole[2:]
    assert all(part.cells < all_of_it.cells for part, all_of_it in zip(found.computed[:2], found.whole, strict=False))
    assert found.width == Width(2, 4, 4, 8, {})
    assert all(each.bytes_held == each.cells * 10 * 8 for each in found.computed)


def test_a_window_longer_than_time_is_all_of_it(graph: DynamicGraph) -> None:
    (run,) = Trainer(graph, "tgcn", "regression").train(sliding(Trapezoid(full=2, decayed=30)), 1, epochs=1)
    found = decayed(run.job, Sliding(run.job))
    assert found is not None
    assert len(found.times) == len(run.problem.split.train)


def made_up(num_ranks: int = 2, full: int = 1) -> Decayed:
    computed = [Amount(12, 34, 56, 7_000, 8_000), Amount(1_000, 5_000, 600, 70_000, 80_000)]
    whole = [Amount(1_200, 6_800, 700, 80_000, 96_000), computed[1]]
    width = Width(2, 3, 4, 4, {"in": [8]})
    return Decayed(Decay(full, 2 - full, 0.01), ["May", "June <&>"], computed, whole, width, num_ranks)


def test_the_picture_has_the_newest_snapshot_first_and_the_sums_below() -> None:
    found = texts(decayed_svg(made_up()))
    assert found[0] == "A step computes 1 snapshot whole and 1 decayed to 1.0%"
    newest, oldest, sums, whole = (
        found.index(text) for text in ("June <&>", "May", "a step", "a window that keeps everything")
    )
    assert found[newest : newest + 7] == ["June <&>", "100%", "1,000", "5,000", "600", "68.4 KiB", "78.1 KiB"]
    assert found[oldest : oldest + 7] == ["May", "1.0%", "12", "34", "56", "6.8 KiB", "7.8 KiB"]
    assert found[sums : sums + 6] == ["a step", "1,012", "5,034", "656", "75.2 KiB", "85.9 KiB"]
    assert found[whole + 1 : whole + 6] == ["2,200", "11,800", "1,300", "146.5 KiB", "171.9 KiB"]
    assert found[whole + 7 : whole + 12] == ["46%", "43%", "50%", "51%", "50%"]


def test_one_rank_sends_nothing_and_the_picture_says_nothing_of_it() -> None:
    assert "sent" in texts(decayed_svg(made_up()))
    assert not any("sent" in text for text in texts(decayed_svg(made_up(num_ranks=1))))


def test_bars_are_as_long_as_the_share_that_is_computed() -> None:
    picture = decayed_svg(made_up())
    assert picture is not None
    groups = [each for each in ElementTree.fromstring(picture) if each.tag.endswith("}g")]
    bars = [[float(rect.attrib["width"]) for rect in group if rect.tag.endswith("rect")] for group in groups]
    assert [part / room for room, part in bars] == pytest.approx([1.0, 0.01], abs=1e-3)


def test_nothing_that_slides_is_no_picture(graph: DynamicGraph) -> None:
    assert decayed_svg(None) is None
    (run,) = Trainer(graph, "tgcn", "regression").train(preset("metis"), 1, epochs=1)
    assert decayed(run.job, None) is None
    assert run.window is None
    assert "a step computes" not in run.summary()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.usefixtures("ranks_are_threads")
def test_a_run_leaves_the_picture_and_says_it_in_words(graph: DynamicGraph, ranks: int, tmp_path: Path) -> None:
    plan = preset("flare", full=2, decayed=2, keep=0.2, chunks=8)
    run = strobe.train(graph, "dcrnn", "regression", plan=plan, ranks=ranks, epochs=1, threads=1, out=tmp_path / "run")
    found = texts((tmp_path / "run" / TRAPEZOID).read_text())
    assert found[0] == "A step computes 2 snapshots whole and 2 decayed to 20%"
    assert ("sent" in found) == (ranks == 2)
    window = _of(run)
    share = f"{window['computed']['cells'] / window['whole']['cells']:.0%}"
    said = f"a step computes 2 snapshots whole and 2 decayed to 20%: {share} of the rows of whole windows"
    assert said in " ".join(run.summary().split())
    assert max(map(len, run.summary().splitlines())) <= 80
    assert open_run(tmp_path / "run", graph=graph).window == window
    assert f"{window['whole']['cells']:,}" in found
    assert window["whole"]["cells"] == sum(graph[t].num_nodes for t in run.problem.split.train[-4:])


def _of(run: Run) -> dict[str, dict[str, int]]:
    assert run.window is not None
    return run.window


def test_a_run_that_tunes_tells_of_what_it_came_to(graph: DynamicGraph) -> None:
    plan = sliding(Trapezoid(full=2, decayed=2, keep=0.2), chunks=8)
    (run,) = Trainer(graph, "tgcn", "regression").train(plan, 1, epochs=1)
    windows = Sliding(run.job)
    windows.decay = Decay(3, 1, 0.2)
    found = decayed(run.job, windows)
    assert found is not None
    run.window = found.to_json()
    assert "a step computes 3 snapshots whole and 1 decayed to 20%, as tuned: " in " ".join(run.summary().split())
