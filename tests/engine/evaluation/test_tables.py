from __future__ import annotations

import numpy as np
import pytest

from strobe.engine.evaluation.tables import time_of
from strobe.graph import from_edges


@pytest.mark.parametrize(
    ("times", "t", "expected"),
    [
        ([0, 1, 2], 1, 1),
        ([0, 10, 20], 3, 30),
        ([0, 10, 20], 4, 40),
        ([0, 10, 25], 3, None),
        (["2024-01-01", "2024-01-15", "2024-01-29"], 3, "2024-02-12"),
        (["2023-11-01", "2023-12-01", "2024-01-01"], 3, "2024-02-01"),
        (["2023-11", "2023-12", "2024-01"], 4, "2024-03"),
        (["2024-01-01T22:00:00", "2024-01-01T23:00:00"], 2, "2024-01-02T00:00:00"),
        (["2024-01-01", "2024-01-15", "2024-03-29"], 3, None),
        (["first", "second"], 2, None),
        ([3], 1, None),
    ],
)
def test_time_of_a_later_snapshot_continues_equal_steps(times: list[int | str], t: int, expected: int | str) -> None:
    graph = from_edges([np.array([[0], [1]])] * len(times), num_nodes=2, times=times)
    assert time_of(graph, t) == expected
