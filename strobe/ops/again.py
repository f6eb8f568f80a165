"""Whether a forward pass is one that backward has asked for, to have its results once more."""

from __future__ import annotations

import torch


def computing_again() -> bool:
    """Whether this forward pass runs inside a backward pass: a segment computed again."""
    return bool(torch._C._current_graph_task_id() != -1)
