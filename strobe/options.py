"""What options may be: the kinds of values that constructors ask for, checked, and said in words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from strobe.errors import OptionError, UnknownNameError

Hints = Mapping[str, Any]
"""The type every option has, by name."""

_SEVERAL = " or several, with commas"
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}


def hints_of(maker: Callable[..., Any], *leave_out: str) -> dict[str, Any]:
    """The options of a class with their types, but for some."""
    hints = get_type_hints(maker.__init__ if isinstance(maker, type) else maker)  # type: ignore[misc]
    return {name: hints[name] for name in inspect.signature(maker).parameters if name not in leave_out}


def check_options(whose: str, given: Mapping[str, Any], hints: Hints) -> None:
    """Refuses options that are not there, with the nearest that is, and values of another kind."""
    for name, value in given.items():
        if name not in hints:
            raise UnknownNameError(f"option of {whose}", name, hints)
        if not _fits(value, hints[name]):
            raise OptionError(f"{name} of {whose} must be {in_words(hints[name])}, not {value!r}")


def several(given: object) -> tuple[Any, ...]:
    """One value or a sequence of them, as a tuple."""
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)


def in_words(hint: Any) -> str:
    """What a type allows, for people."""
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if hint in _WORDS:
        return _WORDS[hint]
    parts = get_args(hint)
    if get_origin(hint) in (list, tuple, Sequence) and parts:
        return f"{in_words(parts[0])}{_SEVERAL}"
    said = [in_words(part) for part in parts]
    # "a number" says nothing beside "a number or several"
    return " or ".join(one for one in said if f"{one}{_SEVERAL}" not in said) if parts else str(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; types without words of their own let everything pass."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint not in _WORDS:
        return True
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, hint)
