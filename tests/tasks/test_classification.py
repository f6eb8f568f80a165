from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, from_edges
from strobe.tasks import NodeClassification
from strobe.tasks.base import Examples
from strobe.tasks.classification import ClassificationProblem
from strobe.tasks.split import PARTS


def silent(snapshots: int, num_nodes: int, **carried: Any) -> DynamicGraph:
    """Snapshots without edges."""
    return from_edges([np.empty((2, 0), np.int64)] * snapshots, num_nodes=num_nodes, **carried)


def example_nodes(problem: ClassificationProblem, part: str) -> set[int]:
    found: set[int] = set()
    for t in problem.split.part(part):
        examples = problem.examples(t)
        if examples is not None:
            nodes = problem.graph[t].nodes
            found |= set((nodes if examples.cell_index is None else nodes[examples.cell_index[0].numpy()]).tolist())
    return found


def test_nodes_with_static_labels_are_in_one_part() -> None:
    labels = np.arange(100) % 3
    labels[::10] = -1  # ten are unlabelled
    problem = NodeClassification().bind(silent(10, 100, y=labels))
    nodes = {part: example_nodes(problem, part) for part in PARTS}
    assert {part: len(found) for part, found in nodes.items()} == {"train": 63, "validation": 9, "test": 18}
    assert set.union(*nodes.values()) == set(np.flatnonzero(labels >= 0).tolist())
    assert problem.counts("train") == {"snapshots": 7, "examples": 7 * 63}


def test_nodes_outside_a_view_are_in_no_part() -> None:
    graph = silent(10, 100, y=np.arange(100) % 3).subset(range(10))
    problem = NodeClassification().bind(graph)
    assert [len(example_nodes(problem, part)) for part in PARTS] == [7, 1, 2]


def test_classes_may_be_any_whole_numbers() -> None:
    y = [np.array([70, 10**12])] * 6
    problem = NodeClassification().bind(silent(6, 2, y=y))
    head = problem.head(4)
    examples = problem.examples(0)
    assert examples is not None
    answers = head(torch.zeros(2, 4))
    assert answers.shape == (2, 2)
    loss = problem.loss(torch.tensor([[3.0, 0.0], [3.0, 0.0]]), examples)
    # -log softmax: log(1 + e⁻³) where the first class is right, log(1 + e³) where the second is
    assert float(loss) == pytest.approx(math.log1p(math.exp(-3)) + math.log1p(math.exp(3)))
    table = problem.table(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), examples, 0)
    assert table["predicted"].tolist() == [70, 10**12]
    assert table["probability"].tolist() == pytest.approx([1 / (1 + math.exp(-3)), 1 / (1 + math.exp(-1))])
    assert table["actual"].tolist() == [70, 10**12]


def test_class_outside_training_counts_as_wrong() -> None:
    y = [np.array([0, 1])] * 5 + [np.array([2, 0])] * 2
    problem = NodeClassification().bind(silent(7, 2, y=y))
    examples = problem.examples(6)
    assert examples is not None
    assert examples.labels.tolist() == [2, 0]
    answers = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert problem.metrics([answers], [examples])["accuracy"] == 0.5
    assert float(problem.loss(answers, examples)) == pytest.approx(math.log1p(math.exp(-1)))  # of the known one


def test_last_label_survives_absence() -> None:
    y = [[0, 1], [1, 1], [-1], [0], [-1, 1], [1, 1], [1, 1]]
    nodes = [[0, 1], [0, 1], [0], [0], [0, 1], [0, 1], [0, 1]]
    graph = silent(7, 2, nodes=nodes, y=[np.array(row) for row in y])
    problem = NodeClassification(label_delay=1, train=0.5, validation=0.2).bind(graph)
    assert problem.split.validation == range(3, 4)
    assert problem.most_frequent == 1
    # Time 3: node 0 is 0, last known 1. Time 4: node 1 is 1, last known 1. Times 5 and 6: node 0 is 1, first after 0.
    assert problem.baselines("validation")["last label"]["accuracy"] == 0.0
    assert problem.baselines("test")["last label"]["accuracy"] == pytest.approx(4 / 5)


def test_smallest_of_equally_frequent_classes_is_predicted() -> None:
    assert NodeClassification().bind(silent(5, 2, y=[np.array([5, 3])] * 5)).most_frequent == 3


def test_nan_predictions_give_nan_metrics() -> None:
    problem = NodeClassification().bind(silent(5, 2, y=[np.array([0, 1])] * 5))
    examples = problem.examples(4)
    assert examples is not None
    scored = problem.metrics([torch.full((2, 2), math.nan)], [examples])
    assert math.isnan(scored["accuracy"])
    assert problem.metrics([], []) == {}


def named(*classes: str) -> DynamicGraph:
    return replace(silent(5, 12, y=np.arange(12) % len(classes)), info={"classes": list(classes)})


def test_table_has_names_of_classes() -> None:
    problem = NodeClassification().bind(named("DK", "NO", "SE"))
    answers = torch.eye(3)[torch.tensor([2, 0])]
    found = problem.table(answers, Examples(None, torch.tensor([1, -1])), 0)
    assert found["predicted_name"].tolist() == ["SE", "DK"]
    assert found["actual_name"].tolist() == ["NO", None]


def test_other_class_names_are_refused() -> None:
    task = NodeClassification()
    trained = task.bind(named("DK", "NO", "SE")).state()
    assert task.bind(named("DK", "NO", "SE"), state=trained).classes.tolist() == [0, 1, 2]
    task.bind(silent(5, 12, y=np.arange(12) % 3), state=trained)  # numbers are taken as they are
    with pytest.raises(InputError, match="classes of this graph are NO, SE, the model was trained on DK, NO, SE"):
        task.bind(named("NO", "SE"), state=trained)


@pytest.mark.parametrize(
    ("graph", "word"),
    [
        (silent(5, 2), "no labels"),
        (silent(5, 2, y=[np.array([0.5, 1.5])] * 5), "regression"),
        (silent(5, 2, y=[np.array([[0, 1], [1, 0]])] * 5), "2 labels"),
        (silent(5, 4, y=np.array([0, 1, -1, -1])), "2 nodes"),
        (silent(5, 2, y=[np.array([-1, -1])] * 4 + [np.array([0, 1])]), "label more nodes"),
    ],
)
def test_graphs_without_classes_are_refused(graph: DynamicGraph, word: str) -> None:
    with pytest.raises(InputError, match=word):
        NodeClassification().bind(graph)


def test_negative_ahead_is_refused() -> None:
    with pytest.raises(OptionError, match="-1"):
        NodeClassification(ahead=-1)
