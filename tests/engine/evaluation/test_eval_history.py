"""How far back scoring and prediction read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.api import open_run, train
from strobe.batching import Full, Groups, Hybrid, Sampled
from strobe.engine import Run
from strobe.engine.run import evaluate
from strobe.engine.settings import Settings
from strobe.errors import OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.presets import preset
from strobe.tasks import NodeRegression

SNAPSHOTS, NODES = 14, 8
TASK = NodeRegression(target="features")


def graph_of(past: int = 0) -> DynamicGraph:
    """A graph whose snapshots before the ninth depend on ``past``."""
    found: list[tuple[Any, Any]] = []
    for t in range(SNAPSHOTS):
        rng = np.random.default_rng([t, past if t < 8 else 0])
        pairs = np.array([(a, b) for a in range(NODES) for b in range(NODES) if a != b]).T
        found.append((pairs[:, rng.permutation(pairs.shape[1])[:16]], rng.normal(size=(NODES, 2)).astype(np.float32)))
    return from_edges([edges for edges, _ in found], num_nodes=NODES, x=[x for _, x in found])


def trained(plan: str, eval_history: Any = "auto", **options: Any) -> Run:
    chosen = {"epochs": 2, "threads": 1, "eval_history": eval_history}
    return train(graph_of(), "tgcn", TASK, plan=preset(plan, **options), model_options={"hidden": 4}, **chosen)


def predicted_at(run: Run, t: int) -> np.ndarray[Any, Any]:
    """What is predicted at a test snapshot."""
    rows = run.predict("test").to_pandas()
    columns = [name for name in rows if name.startswith("predicted")]
    return np.asarray(rows.loc[rows["t"] == t, columns])


def depends_on_the_past(run: Run, t: int) -> bool:
    """Whether a prediction at snapshot t changes with snapshots before the ninth."""
    moved = open_run(run, graph=graph_of(past=1))
    return not np.array_equal(predicted_at(run, t), predicted_at(moved, t))


@pytest.mark.parametrize("options", [{"size": 3}, {"size": 2}])
def test_groups_are_scored_with_no_more_snapshots_than_they_are_trained_with(options: dict[str, int]) -> None:
    run = trained("psg", **options)
    last = run.problem.split.test[-1]
    assert last - options["size"] + 1 >= 8
    assert not depends_on_the_past(run, last)
    assert depends_on_the_past(trained("psg", "all", **options), last)


def test_a_finished_run_is_scored_as_it_was_while_it_trained() -> None:
    run = trained("psg", size=3)
    assert evaluate(run, "test").metrics == run.test
    assert evaluate(run, "validation").metrics == run.validation


def test_states_are_carried_from_the_first_snapshot_unless_a_number_bounds_them() -> None:
    last = trained("relay").problem.split.test[-1]
    assert depends_on_the_past(trained("relay"), last)
    assert not depends_on_the_past(trained("relay", 3), last)


def test_as_many_snapshots_as_there_are_is_all_history() -> None:
    assert trained("relay", SNAPSHOTS).test == pytest.approx(trained("relay", "all").test, rel=1e-5)


def test_batches_of_evaluation_ask_every_snapshot_once() -> None:
    times = range(5, 12)
    for batching in (Groups(size=4), Groups(size=4, stride=2), Sampled(history=3)):
        batches = batching.evaluation_batches(times)
        assert batches is not None
        assert [t for batch in batches for t in batch.target_times] == list(times)
        assert all(set(batch.target_times) <= set(batch.times) and not batch.continues_state for batch in batches)
        assert all(len(batch.times) <= 4 for batch in batches)
    for carried in (Full(), Hybrid()):
        assert carried.evaluation_batches(times) is None


@pytest.mark.parametrize("nonsense", [0, -3, "some", 1.5])
def test_a_history_is_a_number_of_snapshots_auto_or_all(nonsense: Any) -> None:
    with pytest.raises(OptionError, match="eval_history"):
        Settings(eval_history=nonsense)
