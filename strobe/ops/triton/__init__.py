"""GPU kernels in Triton, which comes with torch's builds for CUDA.

Without Triton, or for tensors without kernels, operations run in plain torch. Modules of this package import Triton;
they are imported when they are first used, after ``usable``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from strobe.ops.triton import attention, gru, linear, lstm, readout, spmm, time_attention

__all__ = [
    "DTYPES",
    "Precision",
    "attention",
    "available",
    "gru",
    "linear",
    "load_in_background",
    "lstm",
    "precision",
    "readout",
    "spmm",
    "time_attention",
    "usable",
]

Precision = Literal["tf32", "tf32x3"]
"""Precision of float32 products: one TF32 product (11-bit factors), or three, as exact as float32."""

DTYPES = (torch.float32, torch.bfloat16)
"""Dtypes of rows; sums are float32."""


def __getattr__(name: str) -> ModuleType:
    """Import a module of kernels, and Triton with it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


@cache
def available() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


@cache
def usable(device: torch.device, *dtypes: torch.dtype) -> bool:
    """Whether kernels exist for tensors of these dtypes: on a GPU, all float32 or all bfloat16."""
    uniform = len(set(dtypes)) == 1 and dtypes[0] in DTYPES
    return uniform and device.type == _device_type() and available()


def _device_type() -> str:
    """Device type of kernels: the CPU with Triton's interpreter, for tests without a GPU."""
    return "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def load_in_background(device: torch.device) -> None:
    """Import Triton and hash its files, by which it names compiled kernels, while the host does something else.

    It takes half a second, and is done at the first kernel otherwise.
    """
    if device.type == "cuda" and available():
        Thread(target=_load, daemon=True).start()


def _load() -> None:
    with suppress(Exception):  # what is wrong shows at the first kernel
        import_module("triton.runtime.cache").triton_key()


def precision() -> Precision:
    """Precision by ``torch.set_float32_matmul_precision``: "high" allows TF32."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
