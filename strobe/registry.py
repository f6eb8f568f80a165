"""All strategies by axis and name. Naming a strategy imports its module, so a process loads only what its plan uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strobe.errors import OptionError, UnknownNameError
from strobe.options import check_options, option_types, short_repr
from strobe.strategy import STRATEGIES, Strategy, load_strategy


class _Choices(Mapping[str, type[Strategy]]):
    """Strategy classes of one axis by name, imported when they are looked up."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def __getitem__(self, name: str) -> type[Strategy]:
        strategy: type[Strategy] = load_strategy(self._paths[name])
        return strategy

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


AXES: Mapping[str, Mapping[str, type[Strategy]]] = {axis: _Choices(paths) for axis, paths in STRATEGIES.items()}


def make_strategy(axis: str, value: Any) -> Any:
    """Make a strategy from its name, or from its name and fields as ``Strategy.to_json`` returns them.

    Args:
        axis: an axis of ``Plan``, or a stage of the exchange, ``structure`` or ``time``.
        value: a name or a mapping. A field that is itself a strategy belongs to the same axis.

    Raises:
        UnknownNameError: there is no such axis, strategy or option.
        OptionError: a value has another type.
    """
    if axis == "exchange":
        if not isinstance(value, Mapping) or set(value) != {"structure", "time"}:
            raise OptionError(
                f"an exchange is one for the structure and one for the time stage, not {short_repr(value)}"
            )
        return load_strategy("exchange.base:Exchange")(**{stage: make_strategy(stage, v) for stage, v in value.items()})
    if axis not in AXES:
        raise UnknownNameError("axis", axis, [*AXES, "exchange"])
    if not isinstance(value, str | Mapping):
        raise OptionError(
            f"{axis} is the name of a choice, or an object with its name and options, not {short_repr(value)}"
        )
    options = {"name": value} if isinstance(value, str) else dict(value)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in AXES[axis]:
        raise UnknownNameError(f"{axis} choice" if axis in ("structure", "time") else axis, name, AXES[axis])
    strategy = AXES[axis][name]
    hints = option_types(strategy)
    for option, inner in options.items():
        if is_strategy_type(hints.get(option)) and not isinstance(inner, Strategy):
            options[option] = make_strategy(axis, inner)
    check_options(f"{axis} {name}", options, hints)
    return strategy(**options)


def is_strategy_type(hint: Any) -> bool:
    """Return whether an option of this type is itself a strategy, one that is wrapped."""
    return isinstance(hint, type) and issubclass(hint, Strategy)
