from __future__ import annotations

import numpy as np
import torch

from strobe.engine.examples import LocalExamples
from strobe.engine.sources.arriving import hash_uniform, split_examples
from strobe.tasks.base import Examples
from strobe.view import WindowData
from tests.support.runs import small_graph


def pairs(positives: list[tuple[int, int]], negative: int) -> LocalExamples:
    """Each positive with one negative."""
    ends = [pair for u, v in positives for pair in ((u, v), (u, negative))]
    labels = torch.tensor([1.0, 0.0] * len(positives))
    return LocalExamples(Examples((torch.arange(len(ends)),), labels, edge_label_index=torch.tensor(ends).t()))


def test_hashes_are_uniform_and_depend_on_the_key() -> None:
    ids = np.arange(20_000)
    first, second = hash_uniform((0, 3), ids), hash_uniform((0, 4), ids)
    assert abs(np.histogram(first, 10, (0, 1))[0] - 2_000).max() < 200
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_a_pair_is_in_the_same_part_of_every_sample() -> None:
    data = WindowData(small_graph()[:1])  # undirected
    edges = [(u, u + 1) for u in range(30)]
    samples = [pairs(edges, 35), pairs([(v, u) for u, v in edges[::2]], 36)]
    parts = [[each.examples for each in split_examples(sample, data, 0.4, (0, 0))] for sample in samples]
    chosen = [[{int(row) // 2 for row in part.cell_index[0]} for part in sample if part.cell_index] for sample in parts]
    for training, validation in chosen:
        assert training
        assert validation
        assert not training & validation
    assert {2 * k for k in chosen[1][1]} == {k for k in chosen[0][1] if k % 2 == 0}
    for sample in parts:
        assert sum(len(part) for part in sample) in (30, 60)
        for part in sample:
            assert part.labels.tolist() == [1.0, 0.0] * (len(part) // 2)


def test_examples_of_all_cells_are_split_by_node() -> None:
    data = WindowData(small_graph()[:1])
    labels = torch.arange(data.num_cells, dtype=torch.float64)[:, None]
    training, validation = split_examples(LocalExamples(Examples(None, labels)), data, 0.5, (0, 0))
    rows = []
    for part in (training, validation):
        assert part.examples.cell_index is not None
        rows.append(part.examples.cell_index[0])
        assert torch.equal(part.examples.labels[:, 0], part.examples.cell_index[0].double())
    assert sorted(torch.cat(rows).tolist()) == list(range(data.num_cells))
    assert all(map(len, rows))
