"""State of autograd."""

from __future__ import annotations

import torch


def in_recompute() -> bool:
    """Whether this forward pass recomputes a checkpointed segment inside a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)
