"""Nests of tensors and plain values: copied, and taken apart into what JSON can say and a flat set of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from strobe.errors import FormatError, OptionError

_TENSOR, _TUPLE, _DICT, _FLOAT = "$tensor", "$tuple", "$dict", "$float"


def copied(nest: Any, device: str | None = None) -> Any:
    """The same nest, its tensors in memory of their own, where they are or on another device."""
    if isinstance(nest, Tensor):
        return nest.detach().to(device or nest.device, copy=True)
    if isinstance(nest, dict):
        return {key: copied(value, device) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(copied(value, device) for value in nest)
    return nest


def is_like(found: Any, fresh: Any) -> bool:
    """Whether a nest that was read has the names and types of one that was made: of lists every item, of tensors the
    number type and the shape. Where one of them has None, or a list without items, the other may have anything."""
    if found is None or fresh is None:
        return True
    if isinstance(fresh, Tensor):
        return isinstance(found, Tensor) and (found.dtype, found.shape) == (fresh.dtype, fresh.shape)
    if isinstance(fresh, dict):
        return (
            isinstance(found, dict)
            and found.keys() == fresh.keys()
            and all(is_like(found[name], value) for name, value in fresh.items())
        )
    if isinstance(fresh, list | tuple):
        return type(found) is type(fresh) and (not fresh or all(is_like(item, fresh[0]) for item in found))
    number = type(fresh) in (int, float) and type(found) in (int, float)
    return type(found) is type(fresh) or (number and type(fresh) is float)


def taken_apart(nest: Any) -> tuple[Any, dict[str, Tensor]]:
    """Values that JSON can say exactly, and the tensors they name.

    JSON knows neither tuples, nor keys that are numbers, nor numbers that are none: these are marked with a ``$``.
    """
    tensors: dict[str, Tensor] = {}
    return _plain(nest, (), tensors), tensors


def put_together(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The nest that was taken apart."""
    if isinstance(value, list):
        return [put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        if not isinstance(value[_TENSOR], str) or value[_TENSOR] not in tensors:
            raise FormatError(f"the tensor {value[_TENSOR]} is not there")
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(put_together(item, tensors) for item in value[_TUPLE])
    if _DICT in value:
        return {_key(key): put_together(item, tensors) for key, item in value[_DICT]}
    if _FLOAT in value:
        return float(value[_FLOAT])
    return {key: put_together(item, tensors) for key, item in value.items()}


def _key(key: Any) -> int | str:
    if type(key) not in (int, str):
        raise FormatError(f"{key!r} is no key of a dictionary")
    found: int | str = key
    return found


def _plain(value: Any, place: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, Tensor):
        return {_TENSOR: _named(value, place, tensors)}
    if kind in (list, tuple):
        items = [_plain(item, (*place, str(k)), tensors) for k, item in enumerate(value)]
        return items if kind is list else {_TUPLE: items}
    if isinstance(value, dict) and all(type(key) in (int, str) for key in value):
        pairs = [(key, _plain(item, (*place, str(key)), tensors)) for key, item in value.items()]
        clear = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(pairs) if clear else {_DICT: pairs}
    raise OptionError(
        f"{'.'.join(place)} is a {kind.__name__}, and a checkpoint holds only tensors, numbers, texts, and lists, "
        "tuples and dictionaries of them: let get_extra_state give those"
    )


def _named(value: Tensor, place: tuple[str, ...], tensors: dict[str, Tensor]) -> str:
    name = ".".join(place)
    if value.layout != torch.strided:
        raise OptionError(
            f"{name} is a sparse tensor, and a checkpoint holds only dense ones: register it with persistent=False"
        )
    while name in tensors:  # {"a.b": …} and {"a": {"b": …}} may stand in one nest
        name += "'"
    tensors[name] = value
    return name
