"""What a time stage that looks back carries from window to window: the inputs of the last snapshots, as they were.

Past cells come before a window's own in order of time, so that both together are sequences like any others: a stage
that runs over them and gives outputs for the window alone gives what it would have given without the cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops.sequences import Sequences

Past = dict[str, Any]
"""``x`` [P, F]: inputs of past cells; ``slots`` [P]: whose they are; ``cell_ptr``: where each snapshot's begin."""


def with_past(x: Tensor, state: Past | None, sequences: Sequences) -> tuple[Tensor, Sequences, int]:
    """Inputs and sequences of past cells and the window's together, and the number of snapshots that are past."""
    if state is None:
        return x, sequences, 0
    ptr: tuple[int, ...] = state["cell_ptr"]
    joined = (*ptr[:-1], *(ptr[-1] + start for start in sequences.cell_ptr))
    always = sequences.slot is None and ptr[-1] == (len(ptr) - 1) * sequences.num_slots
    slots = None if always else np.concatenate([state["slots"].cpu().numpy(), sequences.slots.cpu().numpy()])
    both = Sequences(joined, slots, sequences.num_slots, sequences.device)
    return torch.cat([state["x"], x]), both, len(ptr) - 1


def past_of(x: Tensor, sequences: Sequences, span: int | None) -> Past:
    """What the next window must know: inputs of the last ``span - 1`` snapshots, or of all."""
    first = 0 if span is None else max(sequences.num_snapshots - span + 1, 0)
    begin = sequences.cell_ptr[first]
    kept = x[begin:].clone() if begin else x  # a copy, lest a few rows keep a whole window in memory
    ptr = tuple(start - begin for start in sequences.cell_ptr[first:])
    return {"x": kept, "slots": sequences.slots[begin:], "cell_ptr": ptr}
