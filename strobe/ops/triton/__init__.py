"""The GPU kernels, written in Triton, or word that they cannot be used.

Triton comes with torch's builds for CUDA. Without it, or on tensors that kernels are not made for, everything runs as
plain torch. Modules of this folder import Triton and are imported by whoever found the kernels ``usable``.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["tf32", "tf32x3"]
"""How products of float32 matrices run: rounded to TF32 (11 bits of a factor), or as three such products, whose sum is
as exact as float32."""

KINDS = (torch.float32, torch.bfloat16)
"""What rows may be stored as; sums are float32 always."""


@cache
def available() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can work on these: on one GPU, all in float32 or all in bfloat16."""
    kinds, places = {x.dtype for x in tensors}, {x.device for x in tensors}
    alike = len(kinds) == 1 and kinds <= set(KINDS) and len(places) == 1
    return alike and next(iter(places)).type == _place() and available()


def _place() -> str:
    """Where kernels run: with Triton's interpreter, for tests on machines without a GPU, on the CPU."""
    return "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def precision() -> Precision:
    """As torch is told to multiply float32 matrices: ``torch.set_float32_matmul_precision("high")`` allows TF32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
