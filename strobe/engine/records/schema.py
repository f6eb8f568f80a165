"""Names and types of the files of a run, which are checked besides their checksums.

A checksum finds damage and edits, but not a file that was forged together with its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any

from strobe.engine.settings import Settings
from strobe.errors import FormatError
from strobe.plan import Plan

Check = Callable[[Any], bool]
"""Whether a value of JSON is what it must be."""


def _any(value: Any) -> bool:
    del value
    return True


def _text(value: Any) -> bool:
    """A text that can be a path: JSON can write halves of characters, which no file name has."""
    return isinstance(value, str) and value.isprintable()


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e308 < value < 1e308 and isfinite(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _positive(value: Any) -> bool:
    return _count(value) and value > 0


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _all(check: Check) -> Check:
    """An object whose values all pass."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _with(**checks: Check) -> Check:
    """An object that has at least these values."""
    return lambda value: isinstance(value, dict) and not _wrong(value, checks)


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _items(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _pair(value: Any) -> bool:
    return _items(_number)(value) and len(value) == 2


_METRICS = _all(_optional(_number))
_BASELINES = _all(_METRICS)
_LEDGER = _all(_either(_number, _all(_number), _items(_any)))

_CONFIG: dict[str, Check] = {
    "graph": _optional(_either(_with(path=_text), _with(data_set=_text))),
    "fingerprint": _optional(_object),
    "model": _with(name=_text, options=_object, by_name=_truth),
    "task": _optional(_with(name=_text)),
    "problem": _optional(_object),
    "settings": _with(**{each.name: _any for each in fields(Settings)}),
    "plan": _with(**{each.name: _any for each in fields(Plan)}),
    "ranks": _positive,
}
_LINE: dict[str, Check] = {"event": _text, "at": _number}
_EPOCH: dict[str, Check] = {
    "epoch": _positive,
    "step": _count,
    "loss": _optional(_number),
    "train_s": _number,
    "evaluate_s": _number,
}
_EPOCH_MAY: dict[str, Check] = {
    "validation": _METRICS,
    "baselines": _BASELINES,
    "evaluated_epoch": _positive,
    "ranks": _items(_LEDGER),
}
_RESULT: dict[str, Check] = {
    "epochs": _count,
    "best_epoch": _count,
    "seconds": _number,
    "validation": _METRICS,
    "test": _METRICS,
    "baselines": _all(_BASELINES),
}
_CALIBRATION = _with(
    calibration=_with(
        normalization=_text,
        negatives=_positive,
        slope=_number,
        activity=_number,
        bias=_number,
        knots=_items(_pair),
    ),
    error=_optional(_number),
    uncalibrated_error=_optional(_number),
    edge_error=_optional(_number),
    bins=_items(_with(share=_number, predicted=_number, actual=_number)),
)
_RESULT_MAY: dict[str, Check] = {
    "window": _optional(_object),
    "calibration": _optional(_CALIBRATION),
    "startup": _optional(_with(seconds=_number, stages=_all(_number), cached=_items(_text))),
}


def check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Raise FormatError unless these are the values of a run's configuration."""
    _refuse(path, "", _wrong(config, _CONFIG) + _wrong(config, {"online": _object}, missing=False))
    if "online" not in config:  # else it is written before there is anything to fit to
        _refuse(path, "", [name for name in ("task", "problem") if config[name] is None])
    origin = config["graph"] or {}
    _refuse(path, "graph ", _wrong(origin, dict.fromkeys(("path", "data_set", "data_dir"), _text), missing=False))


def check_line(path: Path, line: Mapping[str, Any]) -> None:
    """Raise FormatError unless these are the values of a line of a run's record."""
    _refuse(path, "", _wrong(line, _LINE))
    if line["event"] == "epoch":
        _refuse(path, "epoch ", _wrong(line, _EPOCH) + _wrong(line, _EPOCH_MAY, missing=False))


def check_result(path: Path, result: Mapping[str, Any]) -> None:
    """Raise FormatError unless these are the values of a run's result."""
    _refuse(path, "", _wrong(result, _RESULT) + _wrong(result, _RESULT_MAY, missing=False))


def _wrong(values: Mapping[str, Any], checks: Mapping[str, Check], *, missing: bool = True) -> list[str]:
    """Names of values that do not pass their check, or that are not there."""
    return [name for name, check in checks.items() if (not check(values[name]) if name in values else missing)]


def _refuse(path: Path, which: str, wrong: list[str]) -> None:
    if wrong:
        raise FormatError(f"{path} is damaged: {which}{', '.join(wrong)} is missing or of another type than Strobe's")
