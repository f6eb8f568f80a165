"""Rows stored in 16 bits, for operations whose kernels do not read such rows themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

NARROW = torch.bfloat16

Given = ParamSpec("Given")
Found = TypeVar("Found")


def is_narrow(*rows: Tensor) -> bool:
    """Whether some rows are stored in 16 bits."""
    return any(each.dtype == NARROW for each in rows)


def in_float32(operation: Callable[Given, Found], *given: Given.args, **options: Given.kwargs) -> Found:
    """An operation on the same rows as float32; what it gives is stored in 16 bits again."""
    rows, more = pytree.tree_map(_wide, (given, options))
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        found = operation(*rows, **more)
    return cast("Found", pytree.tree_map(_narrow, found))


def _wide(each: Any) -> Any:
    return each.float() if isinstance(each, Tensor) and each.dtype == NARROW else each


def _narrow(each: Any) -> Any:
    return each.to(NARROW) if isinstance(each, Tensor) and each.dtype == torch.float32 else each
