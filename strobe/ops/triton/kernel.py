"""What kernels share: how they are compiled, and how much of the GPU there is for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton


def kernel(function: Callable[..., Any]) -> Any:
    """The function compiled for the GPU when it is first launched, once for each kind of arguments."""
    return triton.jit(function)


def padded(width: int) -> int:
    """Columns of a tile that has room for ``width``: the matrix units take no fewer than 16."""
    return max(16, power_of_two(width))


def power_of_two(size: int) -> int:
    """The smallest that is no smaller; Triton's own function takes longer than some kernels."""
    return 1 << (size - 1).bit_length()


def multiprocessors(device: torch.device) -> int:
    """How many blocks run at a time, at least."""
    if device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
