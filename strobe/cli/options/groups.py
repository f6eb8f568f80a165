"""Options of commands: help texts, and groups that a command takes as one parameter each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer


def option(help: str, *flags: str, panel: str | None = None, default: bool | str = True, **more: Any) -> Any:
    """An option for ``Annotated``.

    Args:
        help: its text.
        flags: its names; without them, that of the parameter (of a bool also ``--no-NAME``).
        panel: the part of the help it is shown in.
        default: the text to show as its default; True for the value itself, False for none.
        more: arguments of ``typer.Option``.
    """
    return typer.Option(*flags, help=help, rich_help_panel=panel, show_default=default, **more)


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the signature that typer reads: a parameter that is a dataclass becomes one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    flat: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            inner = get_type_hints(groups[name], include_extras=True)
            flat += [keyword(field.name, inner[field.name], field.default) for field in fields(groups[name])]
        else:
            flat.append(keyword(name, hints[name], parameter.default))

    @wraps(command)
    def flattened(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        command(**options)

    return with_parameters(flattened, flat)


def keyword(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """A parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_parameters(command: Callable[..., None], parameters: list[Parameter]) -> Callable[..., None]:
    """Give a function of keyword arguments the signature that typer reads."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def explicit_options(*groups: Any, **values: Any) -> dict[str, Any]:
    """The options of groups, and the single values, that the user gave, by name."""
    for group in groups:
        values |= {field.name: getattr(group, field.name) for field in fields(group)}
    return {name: value for name, value in values.items() if value is not None}
