"""Compilation and launch sizes of kernels."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
import triton

UNSPECIALIZED = ("first_lane", "end_lane")
"""Parameters that differ from launch to launch: kernels are not compiled again for values divisible by 16."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first launch, once per signature."""
    parameters = signature(function).parameters
    return triton.jit(function, do_not_specialize=[name for name in UNSPECIALIZED if name in parameters])


def padded_width(width: int) -> int:
    """Columns of a tile for ``width``: a power of two, at least 16 for the tensor cores."""
    return max(16, power_of_two(width))


def power_of_two(size: int) -> int:
    """Smallest power of two not below ``size``; faster than Triton's function, which takes longer than some kernels."""
    return 1 << (size - 1).bit_length()


def num_multiprocessors(device: torch.device) -> int:
    """Number of multiprocessors of the GPU."""
    if device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
