"""Option groups: dataclasses that a command takes as one parameter each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the signature that typer reads: a parameter that is a dataclass becomes one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    flat: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        single = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        flat += _field_parameters(groups[name]) if name in groups else [single]

    @wraps(command)
    def flattened(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        command(**options)

    flattened.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    flattened.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return flattened


def explicit_options(group: Any) -> dict[str, Any]:
    """The options of a group that the user gave, by name."""
    values = {field.name: getattr(group, field.name) for field in fields(group)}
    return {name: value for name, value in values.items() if value is not None}


def _field_parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]
