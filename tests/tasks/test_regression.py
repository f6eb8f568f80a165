from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.tasks import NodeRegression
from strobe.tasks.regression import RegressionProblem


def labelled(y: Any, nodes: Any = None, num_nodes: int = 2) -> DynamicGraph:
    """Snapshots without edges, with these labels."""
    empty = [np.empty((2, 0), np.int64)] * len(y)
    return from_edges(empty, num_nodes=num_nodes, nodes=nodes, y=[np.array(row) for row in y])


def values(problem: RegressionProblem, t: int) -> list[Any]:
    """Targets of snapshot t in their own units."""
    examples = problem.examples(t)
    assert examples is not None
    assert examples.offset is not None
    known: list[Any] = (examples.labels.numpy() * problem.std + examples.offset.numpy()).tolist()
    return known


COUNTING = [[10.0 * t, 10.0 * t + 1] for t in range(8)]


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_offset_of_labels_ahead_is_the_label_read(ahead: int) -> None:
    graph = labelled([[10.0 * t, 10.0 * t + 1] for t in range(16)])
    problem = NodeRegression(target="labels", ahead=ahead, label_delay=0, from_last=True).bind(graph)
    assert problem.split.test.stop == 16 - ahead
    assert values(problem, 2) == [[10.0 * (2 + ahead)], [10.0 * (2 + ahead) + 1]]
    examples = problem.examples(2)
    assert examples is not None
    assert examples.offset is not None
    assert examples.offset.tolist() == [[20.0], [21.0]]
    assert problem.std.tolist() == [10.0 * ahead]  # every change is the same
    assert problem.examples(16 - ahead) is None


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_label_is_an_offset_only_after_its_delay(delay: int) -> None:
    graph = labelled([[10.0 * t, 10.0 * t + 1] for t in range(20)])
    problem = NodeRegression(target="labels", label_delay=delay, from_last=True).bind(graph)
    examples = problem.examples(5)
    assert examples is not None
    assert examples.offset is not None
    assert examples.offset.tolist() == [[10.0 * (5 - delay)], [10.0 * (5 - delay) + 1]]
    assert problem.baselines("test")["last value"]["mse"] == pytest.approx((10.0 * delay) ** 2)


def test_labels_without_a_delay_are_no_offset_and_no_baseline() -> None:
    problem = NodeRegression(target="labels").bind(labelled(COUNTING))
    assert not problem.from_last
    assert set(problem.baselines("test")) == {"mean"}
    assert problem.note is not None
    assert "label_delay" in problem.note
    with pytest.raises(OptionError, match="label_delay"):
        NodeRegression(target="labels", from_last=True).bind(labelled(COUNTING))


def test_delay_of_the_task_overrides_that_of_the_graph() -> None:
    graph = replace(labelled(COUNTING), info={"label_delay": 1})
    assert NodeRegression(target="labels").bind(graph).delay == 1
    assert NodeRegression(target="labels").bind(graph).note is None
    assert NodeRegression(target="labels", label_delay=2).bind(graph).delay == 2
    for nonsense in ("soon", -1, True, 1.5):
        with pytest.raises(InputError, match="label_delay"):
            NodeRegression(target="labels").bind(replace(graph, info={"label_delay": nonsense}))


def test_labels_that_never_change_have_no_delay() -> None:
    graph = from_edges([np.empty((2, 0), np.int64)] * 6, num_nodes=2, y=np.array([1.0, 2.0]))
    assert set(NodeRegression(target="labels").bind(graph).baselines("test")) == {"mean"}
    with pytest.raises(InputError, match="one label per node"):
        NodeRegression(target="labels", label_delay=1).bind(graph)


WALK = np.random.default_rng(0).normal(size=(60, 3, 2)).cumsum(0).astype(np.float32)


def walking(**options: Any) -> RegressionProblem:
    """A forecast of two features that are random walks."""
    graph = from_edges([np.empty((2, 0), np.int64)] * 60, num_nodes=3, x=list(WALK))
    return NodeRegression(target="features", **options).bind(graph)


def test_horizon_has_features_of_later_snapshots() -> None:
    problem = walking(horizon=4, from_last=True)
    assert problem.width == 8
    np.testing.assert_allclose(values(problem, 5), WALK[6:10].transpose(1, 0, 2).reshape(3, 8), rtol=1e-6)
    examples = problem.examples(5)
    assert examples is not None
    assert examples.offset is not None
    np.testing.assert_allclose(examples.offset.numpy(), np.tile(WALK[5], (1, 4)))
    last = np.square(np.stack([WALK[t + k] - WALK[t] for t in problem.split.test for k in (1, 2, 3, 4)])).mean()
    assert problem.baselines("test")["last value"]["mse"] == pytest.approx(float(last))
    columns = problem.table(torch.zeros(3, 8), examples, 5)
    assert list(columns)[:3] == [
        "predicted_feature_0_ahead_1",
        "predicted_feature_1_ahead_1",
        "predicted_feature_0_ahead_2",
    ]


def test_one_column_of_features_is_predicted() -> None:
    problem = walking(column=1, horizon=2)
    np.testing.assert_allclose(values(problem, 5), WALK[6:8, :, 1].T, rtol=1e-6)
    with pytest.raises(InputError, match="no column 2"):
        walking(column=2)


def test_unknown_and_absent_targets_have_no_examples() -> None:
    y = [[1.0, 2.0], [3.0], [5.0, math.nan], [7.0, 8.0]]
    problem = NodeRegression(target="labels", ahead=1).bind(labelled(y, nodes=[[0, 1], [1], [0, 1], [0, 1]]))
    asked = [problem.examples(t) for t in range(3)]
    assert [examples and examples.cell_index and examples.cell_index[0].tolist() for examples in asked] == [
        [1],
        None,
        None,
    ]
    assert asked[1] is None  # node 1 is there at time 2, but unlabelled; node 0 is not read at time 1
    assert values(problem, 0) == [[3.0]]
    assert values(problem, 2) == [[7.0], [8.0]]


def test_rows_of_labels_need_all_numbers() -> None:
    y = [[[1.0, 10.0], [2.0, 20.0]], [[3.0, math.nan], [4.0, 40.0]], [[5.0, 50.0], [6.0, 60.0]], [[7.0, 70.0]] * 2]
    problem = NodeRegression(target="labels", label_delay=1, from_last=True).bind(labelled(y))
    assert problem.width == 2
    assert values(problem, 1) == [[4.0, 40.0]]
    # What is known of the value before fills column by column: 3, and the training mean for the number that is not.
    examples = problem.examples(2)
    assert examples is not None
    assert examples.offset is not None
    assert examples.offset.tolist() == [[3.0, problem.mean[1]], [4.0, 40.0]]
    said = problem.table(torch.zeros(2, 2), examples, 2)
    assert list(said) == ["predicted_label_0", "predicted_label_1", "actual_label_0", "actual_label_1"]
    np.testing.assert_allclose(said["predicted_label_0"], [3.0, 4.0])
    np.testing.assert_allclose(said["actual_label_1"], [50.0, 60.0])


def test_integer_label_minus_1_means_unlabeled() -> None:
    problem = NodeRegression(target="labels").bind(labelled([[4, -1], [5, 6], [-1, -1], [7, 8]]))
    assert problem.mean.tolist() == [(4 + 5 + 6) / 3]
    assert values(problem, 0) == [[4.0]]
    assert problem.examples(2) is None


def test_constant_column_is_not_divided_by_zero() -> None:
    problem = NodeRegression(target="labels").bind(labelled([[3.0, 3.0]] * 5))
    examples = problem.examples(1)
    assert examples is not None
    assert examples.labels.tolist() == [[0.0], [0.0]]
    assert problem.std.tolist() == [1.0]


def test_offset_is_the_nearer_of_mean_and_last_value() -> None:
    rising = NodeRegression(target="labels", label_delay=1).bind(labelled(COUNTING))
    assert rising.from_last
    swinging = NodeRegression(target="labels", label_delay=1).bind(
        labelled([[(-1.0) ** t, -((-1.0) ** t)] for t in range(8)])
    )
    assert not swinging.from_last
    assert NodeRegression(target="labels", label_delay=1, from_last=True).bind(labelled(COUNTING)).state()["from_last"]


def test_loss_of_a_row_is_the_mean_squared_error() -> None:
    y = [[[1.0, 10.0], [2.0, 20.0]]] * 4
    problem = NodeRegression(target="labels").bind(labelled(y))
    examples = problem.examples(1)
    assert examples is not None
    loss = problem.loss(torch.tensor([[1.0, 2.0], [0.0, 3.0]]) + examples.labels, examples)
    assert float(loss) == pytest.approx((1 + 4) / 2 + 9 / 2)


def test_metrics_are_in_the_units_of_the_data() -> None:
    problem = NodeRegression(target="labels", ahead=1, label_delay=0, from_last=True).bind(labelled(COUNTING))
    asked = [problem.examples(t) for t in problem.split.test]
    examples = [each for each in asked if each is not None]
    # Saying nothing is saying the last value, which is ten too low.
    scored = problem.metrics([torch.zeros(2, 1)] * len(examples), examples)
    assert scored == pytest.approx({"mse": 100.0, "mae": 10.0})
    assert problem.baselines("test")["last value"] == pytest.approx(scored)
    assert problem.metrics([], []) == {}


def test_nan_predictions_give_nan_metrics() -> None:
    problem = NodeRegression(target="labels").bind(labelled(COUNTING))
    examples = problem.examples(7)
    assert examples is not None
    assert math.isnan(problem.metrics([torch.tensor([[math.nan], [0.0]])], [examples])["mse"])


def test_part_without_targets_has_no_baselines() -> None:
    y = [*COUNTING[:7], [math.nan, math.nan]]
    assert NodeRegression(target="labels", train=0.7, validation=0.2).bind(labelled(y)).baselines("test") == {}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target": "weights"}, "degrees or features or labels"),
        ({"target": "features", "ahead": 0}, "features cannot be predicted 0"),
        ({"horizon": 0}, "at least 1"),
        ({"column": 0}, "target=features"),
        ({"target": "features", "column": -1}, "0 or more"),
        ({"target": "features", "column": (1, 1)}, "different"),
        ({"label_delay": 1}, "label_delay needs target=labels"),
        ({"target": "labels", "label_delay": -1}, "0 snapshots or more"),
        ({"target": "labels", "label_delay": 0}, "give ahead=1"),
        ({"ahead": 0}, "degrees cannot be predicted 0"),
        ({"target": "labels", "ahead": -1}, "labels cannot be predicted -1"),
        ({"train": 0.9, "validation": 0.2}, "leave something for testing"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        NodeRegression(**options)


PLAIN = [np.array([[0], [1]])] * 5


@pytest.mark.parametrize(
    ("options", "graph", "word"),
    [
        ({"target": "labels"}, from_edges(PLAIN, num_nodes=2), "no labels"),
        ({"target": "features"}, from_edges(PLAIN, num_nodes=2), "no features"),
        ({"target": "features"}, from_edges(PLAIN, num_nodes=2, x=np.zeros((2, 3), np.float32)), "never change"),
        ({"target": "labels"}, labelled([[math.nan, math.nan]] * 4 + [[1.0, 2.0]]), "no target"),
        ({"target": "labels"}, labelled([[1.0, math.inf]] * 5), "infinite"),
        ({"ahead": 9}, labelled(COUNTING), "0 snapshots"),
    ],
)
def test_graphs_without_targets_are_refused(options: dict[str, Any], graph: DynamicGraph, word: str) -> None:
    with pytest.raises(InputError, match=word):
        NodeRegression(**options).bind(graph)
