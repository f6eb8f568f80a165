"""The compiled CPU kernels, or word that they are missing.

``kernels.c`` is compiled when Strobe is installed on a machine with a C compiler (``python -m
strobe.ops.native.build`` does it by hand). Without it everything runs as plain torch, several times slower.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

VERSION = 13  # what strobe_kernels_version() must say: raised whenever a signature changes


def load(level: str) -> ctypes.CDLL | None:
    """The library for an instruction set: base, avx2 or avx512. None where it is not there or from other sources."""
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name(f"kernels-{level}.so")))
        version = int(found.strobe_kernels_version())
    except (OSError, AttributeError):
        return None
    return found if version == VERSION else None


@cache
def library() -> ctypes.CDLL | None:
    """The best library there is for this machine, by what torch finds the processor capable of."""
    best = {"AVX512": 0, "AVX2": 1}.get(torch.backends.cpu.get_cpu_capability(), 2)
    return next((found for level in ("avx512", "avx2", "base")[best:] if (found := load(level)) is not None), None)


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can work on these: built, on the CPU, all in single or all in double precision.

    Of mixed precisions the plain torch version makes torch's own error.
    """
    kinds = {x.dtype for x in tensors}
    alike = len(kinds) == 1 and kinds <= {torch.float32, torch.float64}
    return alike and all(x.device.type == "cpu" for x in tensors) and library() is not None


def call(name: str, *args: Any) -> None:
    """Runs a kernel by name on integers, tensors of one precision (rows dense), and None for an absent array.

    The interpreter lock is released meanwhile.
    """
    floats = next(arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point())
    single = floats.dtype == torch.float32
    _function(library(), f"{name}_f32" if single else f"{name}_f64")(*[_as_c(arg, single) for arg in args])


def run(name: str, *args: Any) -> None:
    """Runs a kernel that has one precision only, on integers, arrays and None."""
    _function(library(), name)(*[_as_c(arg, False) for arg in args])


@cache
def _function(found: ctypes.CDLL | None, name: str) -> Any:
    assert found is not None
    return found[name]


def _as_c(arg: Any, single: bool) -> Any:
    if isinstance(arg, Tensor):
        if arg.ndim and arg.stride(-1) != 1 and arg.numel() > 1:
            raise ValueError("kernels read rows that are dense")
        return ctypes.c_void_p(arg.data_ptr())
    if isinstance(arg, np.ndarray):
        if not arg.flags.c_contiguous:
            raise ValueError("kernels read arrays that are dense")
        return ctypes.c_void_p(arg.ctypes.data)
    if isinstance(arg, float):
        return ctypes.c_float(arg) if single else ctypes.c_double(arg)
    return ctypes.c_void_p(None) if arg is None else ctypes.c_int64(arg)
