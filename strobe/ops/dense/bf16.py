"""bfloat16 rows, for operations whose kernels do not read bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

BF16 = torch.bfloat16

P = ParamSpec("P")
T = TypeVar("T")


def run_in_float32(operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an operation with bfloat16 inputs converted to float32, and its outputs back to bfloat16."""
    args, kwargs = pytree.tree_map(_to_float32, (args, kwargs))
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        result = operation(*args, **kwargs)
    return cast("T", pytree.tree_map(_to_bf16, result))


def _to_float32(each: Any) -> Any:
    return each.float() if isinstance(each, Tensor) and each.dtype == BF16 else each


def _to_bf16(each: Any) -> Any:
    return each.to(BF16) if isinstance(each, Tensor) and each.dtype == torch.float32 else each
