"""Compiled CPU kernels.

``kernels.c`` is compiled when Strobe is installed on a machine with a C compiler (``python -m
strobe.ops.native.build`` does it by hand). Without it operations run in plain torch, several times slower.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.io.lazy_import import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")  # graphs are read and described without it

VERSION = 16  # equals strobe_kernels_version(); raised whenever a signature changes


def load(level: str) -> ctypes.CDLL | None:
    """Load the library of an instruction set: base, avx2 or avx512. None if missing or of another version."""
    try:
        loaded = ctypes.CDLL(str(Path(__file__).with_name(f"kernels-{level}.so")))
        version = int(loaded.strobe_kernels_version())
    except (OSError, AttributeError):
        return None
    return loaded if version == VERSION else None


@cache
def library() -> ctypes.CDLL | None:
    """The library with the best instruction set that this processor supports."""
    best = {"AVX512": 0, "AVX2": 1}.get(torch.backends.cpu.get_cpu_capability(), 2)
    return next((loaded for level in ("avx512", "avx2", "base")[best:] if (loaded := load(level)) is not None), None)


@cache
def base_library() -> ctypes.CDLL | None:
    """The library without extensions of the instruction set, for kernels that round as numpy does."""
    return load("base")


def usable(*tensors: Tensor) -> bool:
    """Whether kernels exist for these tensors: on the CPU, all float32 or all float64."""
    dtype = tensors[0].dtype
    if dtype is not torch.float32 and dtype is not torch.float64:
        return False
    return all(x.dtype is dtype and x.is_cpu for x in tensors) and library() is not None


def call(name: str, *args: Any) -> None:
    """Run a kernel on integers, contiguous tensors of one precision, and None for absent arrays; releases the GIL."""
    floats = next(arg for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point())
    single = floats.dtype is torch.float32
    _invoke(_function(library(), f"{name}_f32" if single else f"{name}_f64"), args, single=single)


def run(name: str, *args: Any) -> None:
    """Run a kernel with fixed dtypes on integers, arrays and None."""
    _invoke(_function(library(), name), args)


def run_base(name: str, of: np.ndarray[Any, Any], *args: Any) -> None:
    """Run a kernel of the base library in the version for the dtype of an array, which is among the arguments."""
    suffix = f"{of.dtype.kind}{8 * of.dtype.itemsize}"
    _invoke(_function(base_library(), f"{name}_{suffix}"), args)


@cache
def _function(loaded: ctypes.CDLL | None, name: str) -> Any:
    assert loaded is not None
    return loaded[name]


def _invoke(function: Any, args: tuple[Any, ...], *, single: bool = False) -> None:
    """Call a kernel. Types are declared at its first call: ctypes then converts numbers without an object for each."""
    if function.argtypes is None:
        real = ctypes.c_float if single else ctypes.c_double
        function.argtypes = [
            ctypes.c_int64 if isinstance(arg, int | np.integer) else real if isinstance(arg, float) else ctypes.c_void_p
            for arg in args
        ]
    function(*[arg if type(arg) is int or arg is None else _plain(arg) for arg in args])


def _plain(arg: Any) -> int | float:
    """The address of an array, or a number."""
    if isinstance(arg, torch.Tensor):
        if arg.ndim and arg.stride(-1) != 1 and arg.numel() > 1 and arg.shape[-1] > 1:  # one column has any stride
            raise ValueError("kernels read rows that are dense")
        return arg.data_ptr()
    if isinstance(arg, np.ndarray):
        if not arg.flags.c_contiguous:
            raise ValueError("kernels read arrays that are dense")
        return arg.ctypes.data
    return arg if isinstance(arg, float) else int(arg)
