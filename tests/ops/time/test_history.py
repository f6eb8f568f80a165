from __future__ import annotations

import pytest
import torch

from strobe.ops.time.history import extract_history, prepend_history
from tests.ops.time.test_attention import CHANGING, EVERYONE, sequences_of


@pytest.mark.parametrize("present", [CHANGING, EVERYONE])
@pytest.mark.parametrize("cut", [0, 1, 3, 5])
def test_past_and_window_together_are_the_whole(present: list[list[int]], cut: int) -> None:
    slots = 1 + max(max(nodes, default=0) for nodes in present)
    whole, first, second = (sequences_of(part, slots) for part in (present, present[:cut], present[cut:]))
    x = torch.arange(float(whole.num_cells))[:, None]
    state = extract_history(x[: first.num_cells], first, None)
    both, joined, past = prepend_history(x[first.num_cells :], state, second)
    assert past == cut
    assert torch.equal(both, x)
    assert joined.cell_ptr == whole.cell_ptr
    assert joined.slots.tolist() == whole.slots.tolist()
    assert (joined.slot is None) == (whole.slot is None)


@pytest.mark.parametrize(("span", "snapshots", "cells"), [(1, 0, 0), (2, 1, 1), (4, 3, 8), (9, 8, 18), (50, 8, 18)])
def test_only_the_span_before_the_next_window_is_kept(span: int, snapshots: int, cells: int) -> None:
    sequences = sequences_of(CHANGING)
    assert sequences.num_cells == 18
    x = torch.randn(sequences.num_cells, 2)
    state = extract_history(x, sequences, span)
    assert len(state["cell_ptr"]) == snapshots + 1
    assert torch.equal(state["x"], x[18 - cells :])
    assert state["slots"].tolist() == sequences.slots.tolist()[18 - cells :]


def test_a_part_that_is_kept_does_not_hold_the_window_in_memory() -> None:
    sequences = sequences_of(CHANGING)
    state = extract_history(torch.randn(sequences.num_cells, 2), sequences, 2)
    assert state["x"].untyped_storage().nbytes() == state["x"].numel() * 4
