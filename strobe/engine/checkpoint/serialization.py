"""Nested states on disk: one ``.safetensors`` file holds the tensors and, as JSON in its metadata, the structure.

Any reader of safetensors opens the file (``safetensors.torch.load_file``). Its metadata has the values that are not
tensors, and a checksum (``strobe.io.tensor_file``). Nothing that is read is run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.utils import _pytree as pytree

from strobe.errors import FormatError, OptionError
from strobe.io.tensor_file import read_tensor_file, write_tensor_file

_TENSOR, _TUPLE, _DICT, _FLOAT = "$tensor", "$tuple", "$dict", "$float"


def write_tree(path: Path, tree: Any) -> None:
    """Write nested dictionaries, lists and tuples of tensors and plain values, whole or not at all.

    Raises:
        OptionError: the tree holds anything else, or a tensor that is not dense.
    """
    values, tensors = flatten_tree(tree)
    write_tensor_file(path, values, lambda metadata: save(tensors, metadata))


def read_tree(path: Path) -> Any:
    """Read what ``write_tree`` wrote: tensors on the CPU, with their dtypes and shapes.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: a byte of the file differs, or it holds something else.
    """
    data, values = read_tensor_file(path)
    try:
        return unflatten_tree(values, load(data))
    except Exception as error:  # safetensors has many ways to say that it cannot read a file
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{path} is damaged: {why}") from error


def is_intact(path: Path) -> bool:
    """Whether a file is as ``write_tree`` wrote it."""
    try:
        read_tree(path)
    except (FormatError, FileNotFoundError):
        return False
    return True


def copy_tree(tree: Any, device: str | None = None) -> Any:
    """The same tree, its tensors in memory of their own, where they are or on another device."""
    return pytree.tree_map_only(Tensor, lambda each: each.detach().to(device or each.device, copy=True), tree)


def same_structure(found: Any, fresh: Any) -> bool:
    """Whether a tree that was read has the names and types of one that was made: of lists every item, of tensors the
    dtype and the shape. Where one of them has None, or a list without items, the other may have anything."""
    if found is None or fresh is None:
        return True
    if isinstance(fresh, Tensor):
        return isinstance(found, Tensor) and (found.dtype, found.shape) == (fresh.dtype, fresh.shape)
    if isinstance(fresh, dict):
        same_keys = isinstance(found, dict) and found.keys() == fresh.keys()
        return same_keys and all(same_structure(found[name], value) for name, value in fresh.items())
    if isinstance(fresh, list | tuple):
        return type(found) is type(fresh) and (not fresh or all(same_structure(item, fresh[0]) for item in found))
    return type(found) is type(fresh) or (type(fresh) is float and type(found) is int)


def flatten_tree(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Values that JSON can express exactly, and the tensors that they name.

    JSON knows neither tuples, nor keys that are numbers, nor infinite numbers and NaN: these are marked with a ``$``.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(tree, (), tensors), tensors


def unflatten_tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that ``flatten_tree`` took apart."""
    if isinstance(value, list):
        return [unflatten_tree(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        if not isinstance(value[_TENSOR], str) or value[_TENSOR] not in tensors:
            raise FormatError(f"the tensor {value[_TENSOR]} is missing")
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(unflatten_tree(item, tensors) for item in value[_TUPLE])
    if _DICT in value:
        if any(type(key) not in (int, str) for key, _ in value[_DICT]):
            raise FormatError("a key of a dictionary is neither a number nor a text")
        return {key: unflatten_tree(item, tensors) for key, item in value[_DICT]}
    if _FLOAT in value:
        return float(value[_FLOAT])
    return {key: unflatten_tree(item, tensors) for key, item in value.items()}


def _flatten(value: Any, place: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, Tensor) and value.layout == torch.strided and value.dtype != torch.complex128:
        name = ".".join(place)
        while name in tensors:  # {"a.b": …} and {"a": {"b": …}} may stand in one tree
            name += "'"
        tensors[name] = value.detach().contiguous()
        return {_TENSOR: name}
    if kind in (list, tuple):
        items = [_flatten(item, (*place, str(k)), tensors) for k, item in enumerate(value)]
        return items if kind is list else {_TUPLE: items}
    if isinstance(value, dict) and all(type(key) in (int, str) for key in value):
        pairs = [(key, _flatten(item, (*place, str(key)), tensors)) for key, item in value.items()]
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        return dict(pairs) if plain else {_DICT: pairs}
    what = f"{value.layout} {value.dtype} tensor" if isinstance(value, Tensor) else kind.__name__
    raise OptionError(
        f"{'.'.join(place)} is a {what}, and a checkpoint holds only dense tensors, numbers, texts, and lists, "
        "tuples and dictionaries of them: let get_extra_state give those, or register a buffer with persistent=False"
    )
