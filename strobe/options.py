"""What options may be: the kinds of values that constructors ask for, checked, and said in words."""

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
"""The type every option has, by name."""

_BEYOND = 2**63
"""Whole numbers from here on fit no array."""
_SEVERAL = " or several, with commas"
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}


def hints_of(maker: Callable[..., Any], *leave_out: str) -> dict[str, Any]:
    """The options of a class or function with their types, but for some; Any where a type is not known.

    A dataclass has an ``__init__`` of its own with the annotations of all its fields, inherited ones too, as the text
    that stands in the module of the class that declares them: each is looked up there.
    """
    options = inspect.signature(maker).parameters.values()
    named = [option for option in options if option.kind not in (option.VAR_POSITIONAL, option.VAR_KEYWORD)]
    return {option.name: _hint(maker, option) for option in named if option.name not in leave_out}


def _hint(maker: Callable[..., Any], option: inspect.Parameter) -> Any:
    if option.annotation is inspect.Parameter.empty:
        return Any
    annotated = SimpleNamespace(__annotations__={option.name: option.annotation})
    try:
        return get_type_hints(annotated, *_names(maker, option.name))[option.name]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return Any  # such as a type that is local to the function the class was defined in


def _names(maker: Callable[..., Any], option: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Global and local names where an option is declared."""
    if not isinstance(maker, type):
        return getattr(inspect.unwrap(maker), "__globals__", {}), {}
    for owner in maker.__mro__ if is_dataclass(maker) else ():
        if option in inspect.get_annotations(owner):
            return vars(sys.modules.get(owner.__module__, SimpleNamespace())), dict(vars(owner))
    return getattr(maker.__init__, "__globals__", {}), {}  # type: ignore[misc]


def check_options(whose: str, given: Mapping[str, Any], hints: Hints) -> None:
    """Refuses options that are not there, with the nearest that is, and values of another kind."""
    for name, value in given.items():
        if name not in hints:
            raise UnknownNameError(f"option of {whose}", name, hints)
        if not _fits(value, hints[name]):
            raise OptionError(f"{name} of {whose} must be {in_words(hints[name])}, not {short(value)}")


def short(value: object) -> str:
    """A value as a message shows it, however large it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # whole numbers of thousands of digits have no text
        return f"a {type(value).__name__}"


def several(given: object) -> tuple[Any, ...]:
    """One value or a sequence of them, as a tuple."""
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)


def in_words(hint: Any) -> str:
    """What a type allows, for people."""
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if hint in _WORDS:
        return _WORDS[hint]
    if isinstance(hint, type) and get_origin(hint) is None:
        return f"a {hint.__name__}"
    parts = get_args(hint)
    if get_origin(hint) in (list, tuple, Sequence) and parts:
        return f"{in_words(parts[0])}{_SEVERAL}"
    said = [in_words(part) for part in parts]
    # "a number" says nothing beside "a number or several"
    return " or ".join(one for one in said if f"{one}{_SEVERAL}" not in said) if parts else str(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; types without words of their own let everything pass."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in parts)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin in (list, tuple, Sequence) and parts:
        return isinstance(value, list | tuple) and all(_fits(item, parts[0]) for item in value)
    if hint not in _WORDS:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if hint is int:
        return isinstance(value, int) and abs(value) < _BEYOND
    return isinstance(value, hint)
