"""Options of classes and functions: their types, type checks, and descriptions for messages."""

from __future__ import annotations

import inspect
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from strobe.errors import OptionError, UnknownNameError

Hints = Mapping[str, Any]
"""Type of each option, by name."""

_INT_LIMIT = 2**63
"""Integers from here on fit no array."""
_OR_LIST = " or several, with commas"
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}


def option_types(maker: Callable[..., Any], *exclude: str) -> dict[str, Any]:
    """Return the options of a class or function with their types; Any if a type is unknown.

    The ``__init__`` of a dataclass has annotations of inherited fields as text: each is evaluated in the module of the
    class that declares it.
    """
    options = inspect.signature(maker).parameters.values()
    named = [option for option in options if option.kind not in (option.VAR_POSITIONAL, option.VAR_KEYWORD)]
    return {option.name: _hint(maker, option) for option in named if option.name not in exclude}


def _hint(maker: Callable[..., Any], option: inspect.Parameter) -> Any:
    if option.annotation is inspect.Parameter.empty:
        return Any
    annotated = SimpleNamespace(__annotations__={option.name: option.annotation})
    try:
        return get_type_hints(annotated, *_namespaces(maker, option.name))[option.name]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return Any  # such as a type local to a function


def _namespaces(maker: Callable[..., Any], option: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return globals and locals of the place where an option is declared."""
    if not isinstance(maker, type):
        return getattr(inspect.unwrap(maker), "__globals__", {}), {}
    for owner in maker.__mro__ if is_dataclass(maker) else ():
        if option in inspect.get_annotations(owner):
            return vars(sys.modules.get(owner.__module__, SimpleNamespace())), dict(vars(owner))
    return getattr(maker.__init__, "__globals__", {}), {}  # type: ignore[misc]


def check_options(subject: str, values: Mapping[str, Any], hints: Hints) -> None:
    """Check names and types of option values.

    Args:
        subject: what has the options, for messages.
        values: value of each given option.
        hints: type of each known option.

    Raises:
        UnknownNameError: there is no such option; the message suggests the nearest.
        OptionError: a value has another type.
    """
    for name, value in values.items():
        if name not in hints:
            raise UnknownNameError(f"option of {subject}", name, hints)
        if not _is_instance(value, hints[name]):
            raise OptionError(f"{name} of {subject} must be {describe_type(hints[name])}, not {short_repr(value)}")


def short_repr(value: object) -> str:
    """Return a value's repr, shortened for a message."""
    try:
        return reprlib.repr(value)
    except ValueError:  # integers of thousands of digits have no text
        return f"a {type(value).__name__}"


def as_tuple(value: object) -> tuple[Any, ...]:
    """Return a value, or a sequence of values, as a tuple."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def describe_type(hint: Any) -> str:
    """Describe the allowed values of a type in words."""
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if hint in _TYPE_NAMES:
        return _TYPE_NAMES[hint]
    if get_origin(hint) is Callable:
        return "a function"
    if isinstance(hint, type) and get_origin(hint) is None:
        return f"a {hint.__name__}"
    parts = get_args(hint)
    if get_origin(hint) in (list, tuple, Sequence) and parts:
        return f"{describe_type(parts[0])}{_OR_LIST}"
    descriptions = [describe_type(part) for part in parts]
    # "a number" is part of "a number or several"
    return " or ".join(one for one in descriptions if f"{one}{_OR_LIST}" not in descriptions) if parts else str(hint)


def _is_instance(value: Any, hint: Any) -> bool:
    """Return whether a value has a type; types without a description accept everything."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in parts)
    if origin in (Union, UnionType):
        return any(_is_instance(value, part) for part in parts)
    if origin in (list, tuple, Sequence) and parts:
        return isinstance(value, list | tuple) and all(_is_instance(item, parts[0]) for item in value)
    if origin is Callable:
        return callable(value)
    if hint not in _TYPE_NAMES:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if hint is int:
        return isinstance(value, int) and abs(value) < _INT_LIMIT
    return isinstance(value, hint)
