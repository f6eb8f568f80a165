"""State of time stages with a look-back: the inputs of the last snapshots, carried from window to window.

Past cells are prepended to the cells of a window. A stage that runs over both and returns outputs for the window alone
gives the outputs of one uncut window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops.time.sequences import Sequences

History = dict[str, Any]
"""``x`` [P, F]: inputs of past cells; ``slots`` [P]: their slots; ``cell_ptr`` [snapshots + 1]."""


def prepend_history(x: Tensor, state: History | None, sequences: Sequences) -> tuple[Tensor, Sequences, int]:
    """Prepend past cells to a window: inputs, sequences, and the number of past snapshots."""
    if state is None:
        return x, sequences, 0
    ptr: tuple[int, ...] = state["cell_ptr"]
    joined = (*ptr[:-1], *(ptr[-1] + start for start in sequences.cell_ptr))
    always = sequences.slot is None and ptr[-1] == (len(ptr) - 1) * sequences.num_slots
    slots = None if always else np.concatenate([state["slots"].cpu().numpy(), sequences.slots.cpu().numpy()])
    both = Sequences(joined, slots, sequences.num_slots, sequences.device)
    return torch.cat([state["x"], x]), both, len(ptr) - 1


def extract_history(x: Tensor, sequences: Sequences, span: int | None) -> History:
    """Extract the history for the next window: inputs of the last ``span - 1`` snapshots (None: all)."""
    first = 0 if span is None else max(sequences.num_snapshots - span + 1, 0)
    begin = sequences.cell_ptr[first]
    recent = x[begin:].clone() if begin else x  # a copy: a view would hold the whole window in memory
    ptr = tuple(start - begin for start in sequences.cell_ptr[first:])
    return {"x": recent, "slots": sequences.slots[begin:], "cell_ptr": ptr}
