"""Every number of the tasks on a graph of four nodes, worked out by hand.

Directed, six snapshots; node 3 is absent at time 1, node 0 at time 4. Degrees are (in, out), - where absent:

    t   edges                             node 0   node 1   node 2   node 3
    0   0→1  0→2  3→0                     (1, 2)   (1, 0)   (1, 0)   (0, 1)
    1   0→1  1→2  2→1                     (0, 1)   (2, 1)   (1, 1)   -
    2   1→0  2→0  3→0  3→0  2→2           (4, 0)   (0, 1)   (1, 2)   (0, 2)
    3   0→3  1→3  2→3                     (0, 1)   (0, 1)   (0, 1)   (3, 0)
    4   1→2  3→1                          -        (1, 1)   (1, 0)   (0, 1)
    5   0→1  1→2  2→3  3→1                (0, 1)   (2, 1)   (1, 1)   (1, 1)

Features and targets are log(1 + degree): below, L0 to L4 stand for degrees 0 to 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from strobe.graph import DynamicGraph, from_edges
from strobe.tasks import Examples, LinkPrediction, NodeClassification, NodeRegression, Split

L0, L1, L2, L3, L4 = 0.0, 0.6931471805599453, 1.0986122886681098, 1.3862943611198906, 1.6094379124341003

PRESENT = [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3], [0, 1, 2, 3]]
EDGES = [
    [(0, 1), (0, 2), (3, 0)],
    [(0, 1), (1, 2), (2, 1)],
    [(1, 0), (2, 0), (3, 0), (3, 0), (2, 2)],
    [(0, 3), (1, 3), (2, 3)],
    [(1, 2), (3, 1)],
    [(0, 1), (1, 2), (2, 3), (3, 1)],
]
LABELS = [[0, 1, -1, 2], [0, 1, 1], [1, 1, -1, 2], [0, -1, 1, 2], [0, 1, -1], [3, 0, 1, 2]]


def four_nodes(**carried: Any) -> DynamicGraph:
    return from_edges([np.array(edges).T for edges in EDGES], num_nodes=4, nodes=PRESENT, **carried)


def positions(examples: Examples | None) -> list[list[int]] | None:
    assert examples is not None
    return None if examples.cell_index is None else [rows.tolist() for rows in examples.cell_index]


# Splits. Of six snapshots five have a next one: the first int(5 · 0.7) = 3 train, then int(5 · 0.8) - 3 = 1, then 1.


# Inputs: standardised over the cells of snapshots 0, 1 and 2, of which there are 4 + 3 + 4 = 11.
# In-degrees there: 0 four times, 1 five times, 2 once, 4 once; out-degrees: 0 three times, 1 five times, 2 three times.

# (5 L1 + L2 + L4) / 11 = (3.465735903 + 1.098612289 + 1.609437912) / 11 = 6.173786104 / 11
# (5 L1 + 3 L2) / 11 = (3.465735903 + 3.295836866) / 11 = 6.761572769 / 11
INPUT_MEAN = [0.561253282, 0.614688434]
# sqrt((5 L1² + L2² + L4²) / 11 - mean²) = sqrt((2.402265070 + 1.206948961 + 2.590290394) / 11 - 0.315005247)
#   = sqrt(0.563591311 - 0.315005247) = sqrt(0.248586064)
# sqrt((5 L1² + 3 L2²) / 11 - mean²) = sqrt((2.402265070 + 3.620846882) / 11 - 0.377841870) = sqrt(0.169713762)
INPUT_STD = [0.498584059, 0.411963302]


def test_inputs_are_log_degrees_standardised_over_training_snapshots() -> None:
    graph = NodeRegression().bind(four_nodes()).graph
    snapshot = graph[4]
    assert snapshot.x is not None
    mean, std = INPUT_MEAN, INPUT_STD
    expected = [
        [(L1 - mean[0]) / std[0], (L1 - mean[1]) / std[1]],  # node 1: (1, 1)
        [(L1 - mean[0]) / std[0], (L0 - mean[1]) / std[1]],  # node 2: (1, 0)
        [(L0 - mean[0]) / std[0], (L1 - mean[1]) / std[1]],  # node 3: (0, 1)
    ]
    np.testing.assert_allclose(snapshot.x, expected, atol=1e-6)
    # The first number, worked out: (0.693147181 - 0.561253282) / 0.498584059 = 0.131893898 / 0.498584059
    np.testing.assert_allclose(snapshot.x[0, 0], 0.264537, atol=1e-6)


# Regression on the next snapshot's degrees: asked of nodes present in both.

DEGREES_ASKED: list[tuple[list[list[int]] | None, list[list[float]]]] = [
    ([[0, 1, 2]], [[L0, L1], [L2, L1], [L1, L1]]),  # node 3 is absent at time 1
    (None, [[L4, L0], [L0, L1], [L1, L2]]),  # all three that are read are there at time 2; node 3 is not read
    (None, [[L0, L1], [L0, L1], [L0, L1], [L3, L0]]),
    ([[1, 2, 3]], [[L1, L1], [L1, L0], [L0, L1]]),  # node 0 is absent at time 4
    (None, [[L2, L1], [L1, L1], [L1, L1]]),
]
# Ten training targets: in L0 L2 L1 L4 L0 L1 L0 L0 L0 L3, whose sum is log(3·2·5·2·4) = log 240 = 5.480638923;
# out L1 L1 L1 L0 L1 L2 L1 L1 L1 L0, whose sum is log(2⁷·3) = log 384 = 5.950642553.
TARGET_MEAN = [0.548063892, 0.595064255]
# What changes from one snapshot to the next, with K = L2 - L1 = log 1.5 = 0.405465108 (K² = 0.164401954):
#   in   t=0: -L1  K  0      t=1: L4 -L2  0     t=2: -L4  0 -L1  L3
#   out  t=0: -K  L1 L1      t=1: -L1  0  K     t=2:  L1  0  -K -L2
# Mean squares: in (2 L1² + K² + 2 L4² + L2² + L3²) / 10
#   = (0.960906028 + 0.164401954 + 5.180580788 + 1.206948961 + 1.921812056) / 10 = 0.943464979
# out (3 K² + 4 L1² + L2²) / 10 = (0.493205862 + 1.921812056 + 1.206948961) / 10 = 0.362196688
CHANGE = [0.971321254, 0.601827790]


@pytest.mark.parametrize("t", range(5))
def test_degree_targets_of_each_snapshot(t: int) -> None:
    problem = NodeRegression(from_last=True).bind(four_nodes())
    rows, targets = DEGREES_ASKED[t]
    examples = problem.examples(t)
    assert positions(examples) == rows
    assert examples is not None
    assert examples.offset is not None
    values = examples.labels.numpy() * np.array(CHANGE) + examples.offset.numpy()
    np.testing.assert_allclose(values, targets, atol=1e-6)


def test_regression_fits_the_mean_and_the_changes_of_training_targets() -> None:
    problem = NodeRegression(from_last=True).bind(four_nodes())
    np.testing.assert_allclose(problem.mean, TARGET_MEAN, atol=1e-7)
    np.testing.assert_allclose(problem.std, CHANGE, atol=1e-7)


def test_regression_baselines() -> None:
    problem = NodeRegression().bind(four_nodes())
    # Validation, last value: in L1-L0, L1-L0, L0-L3 and out 0, L0-L1, L1-L0. L3 = 2 L1, so the squares are
    # (1 + 1 + 4 + 0 + 1 + 1) L1² = 8 L1² over six numbers, the absolute errors (1 + 1 + 2 + 0 + 1 + 1) L1 = 6 L1.
    last = problem.baselines("validation")["last value"]
    assert last["mse"] == pytest.approx(0.640604018, abs=1e-6)
    assert last["mae"] == pytest.approx(0.693147181, abs=1e-6)
    # Test, last value: in L2-L1 = K, 0, L1 and out 0, L1, 0: (K² + 2 L1²) / 6 = 1.125307982 / 6, (K + 2 L1) / 6.
    last = problem.baselines("test")["last value"]
    assert last["mse"] == pytest.approx(0.187551330, abs=1e-6)
    assert last["mae"] == pytest.approx(0.298626578, abs=1e-6)
    # Test, mean: in L2 - 0.548063892 = 0.550548397 and twice L1 - 0.548063892 = 0.145083289;
    # out three times L1 - 0.595064255 = 0.098082925.
    # (0.303103537 + 2 · 0.021049161 + 3 · 0.009620260) / 6 = 0.374062639 / 6
    # (0.550548397 + 2 · 0.145083289 + 3 · 0.098082925) / 6 = 1.134963750 / 6
    mean = problem.baselines("test")["mean"]
    assert mean["mse"] == pytest.approx(0.062343773, abs=1e-6)
    assert mean["mae"] == pytest.approx(0.189160625, abs=1e-6)


# Classification: the label of the snapshot read. Six snapshots: int(6 · 0.7) = 4 train, one validates, one tests.


def test_class_targets_of_each_snapshot() -> None:
    problem = NodeClassification().bind(four_nodes(y=LABELS))
    assert problem.split == Split(range(4), range(4, 5), range(5, 6))
    asked = [problem.examples(t) for t in range(6)]
    assert [positions(examples) for examples in asked] == [[[0, 1, 3]], None, [[0, 1, 3]], [[0, 2, 3]], [[0, 1]], None]
    assert [examples.labels.tolist() for examples in asked if examples is not None] == [
        [0, 1, 2],
        [0, 1, 1],
        [1, 1, 2],
        [0, 1, 2],
        [0, 1],
        [3, 0, 1, 2],
    ]


def test_classes_are_those_of_training_and_the_most_frequent_is_1() -> None:
    problem = NodeClassification().bind(four_nodes(y=LABELS))
    assert problem.classes.tolist() == [0, 1, 2]  # 3 is seen in the test only
    assert problem.most_frequent == 1  # 0 three times, 1 six times, 2 three times


def test_classification_baselines() -> None:
    problem = NodeClassification(label_delay=1).bind(four_nodes(y=LABELS))
    # Test: true 3 0 1 2. Said 1 1 1 1: F1 of class 1 is 2·1 / (4 + 1), of the others 0.
    assert problem.baselines("test")["most frequent"] == pytest.approx({"accuracy": 0.25, "macro_f1": 0.1})
    # Last labels: node 0 at time 3: 0; node 1 at time 4: 0; node 2 at time 4: 1; node 3 at time 3: 2.
    # F1: class 0 2·1 / (2 + 1), classes 1 and 2 are 1, class 3 is 0: (2/3 + 2) / 4.
    assert problem.baselines("test")["last label"] == pytest.approx({"accuracy": 0.75, "macro_f1": 2 / 3})
    # Validation: true 0 1; node 1 was last labelled at time 2: 1, node 2 at time 3: 1. F1: class 0 0, class 1 2/3.
    assert problem.baselines("validation")["last label"] == pytest.approx({"accuracy": 0.5, "macro_f1": 1 / 3})


def test_classes_ahead_have_examples_of_nodes_that_stay() -> None:
    problem = NodeClassification(ahead=1, label_delay=0).bind(four_nodes(y=LABELS))
    examples = problem.examples(3)
    assert positions(examples) == [[1, 2]]  # at time 4 node 0 is absent and node 3 unlabelled
    assert examples is not None
    assert examples.labels.tolist() == [0, 1]
    # What is known when time 3 is read: node 1 was 1 at time 2, node 2 is 1 at time 3.
    assert problem.baselines("validation")["last label"]["accuracy"] == 0.5
    # Time 4, asked about 5: nodes 1 and 2 are 0 and 1 at time 4 itself, node 3 was 2 at time 3; so they will be.
    assert problem.baselines("test")["last label"]["accuracy"] == 1.0


# Links of the next snapshot, whether or not their ends are present in the one read.

LINKS = [
    [(0, 1), (1, 2), (2, 1)],
    [(1, 0), (2, 0), (3, 0)],  # 3, which is not there yet, meets 0 twice but is asked once; 2→2 is a loop
    [(0, 3), (1, 3), (2, 3)],
    [(1, 2), (3, 1)],
    [(0, 1), (1, 2), (2, 3), (3, 1)],  # 0 is not there
]


@pytest.mark.parametrize("t", range(5))
def test_positives_of_each_snapshot(t: int) -> None:
    examples = LinkPrediction(negatives=1).bind(four_nodes()).examples(t, epoch=0)
    assert examples is not None
    assert examples.edge_label_index is not None
    src, dst = examples.edge_label_index[:, examples.labels == 1].tolist()
    assert list(zip(src, dst, strict=True)) == LINKS[t]


# The test reads snapshot 4. Each node has an edge to one of the three others, so its negatives are two draws among the
# other two: 0→1 against 2 and 3, 1→2 against 0 and 3, 2→3 against 0 and 1, 3→1 against 0 and 2.


def test_link_baselines() -> None:
    problem = LinkPrediction(eval_negatives=2).bind(four_nodes())
    found = problem.baselines("test")
    # Snapshot 4 has 1→2 and 3→1: positives score 0, 1, 0, 1, negatives 0. Ranks 1 + 2/2 = 2, 1, 2, 1.
    # AUC: two positives beat eight each, two tie with eight: (16 + 8) / 32. AP: 2/4 · 2/2, then 2/4 · 4/12.
    last = {"ap": 2 / 3, "auc": 3 / 4, "mrr": 3 / 4, "hits@1": 1 / 2, "hits@3": 1.0, "hits@10": 1.0}
    assert found["last snapshot"] == pytest.approx(last)
    # Seen up to time 4: all positives and all negatives but 3→2, which is drawn n times. Ranks 2, 2, 2 and 2 - n/2.
    # AUC: each positive ties with 8 - n and beats n: ((8 - n)/2 + n) / 8. AP: 4/4 · 4/(12 - n).
    examples = problem.examples(4)
    assert examples is not None
    assert examples.edge_label_index is not None
    n = int((examples.edge_label_index == torch.tensor([[3], [2]])).all(0).sum())
    rank = 2 - n / 2
    seen = {"ap": 4 / (12 - n), "auc": (8 + n) / 16, "mrr": (3 / 2 + 1 / rank) / 4, "hits@1": (rank == 1) / 4}
    assert found["edgebank"] == pytest.approx(seen | {"hits@3": 1.0, "hits@10": 1.0})
    # Edges that reached nodes up to time 4: node 0 has 1 + 0 + 4 + 0 + 0 = 5, node 1 has 1 + 2 + 0 + 0 + 1 = 4,
    # node 2 has 1 + 1 + 1 + 0 + 1 = 4, node 3 has 0 + 0 + 3 + 0 = 3.
    # 2→3 scores 3 against 4 or 5, twice: rank 3. All others score 4 and never meet more than two that beat them.
    assert found["popularity"]["hits@3"] == 1
    assert found["popularity"]["hits@1"] <= 3 / 4
