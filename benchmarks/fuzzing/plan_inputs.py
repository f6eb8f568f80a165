"""Plans and options as users write them, mostly right, and what must be true of those that are accepted."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from benchmarks.fuzzing.run_damage import JUNK, mutate
from benchmarks.fuzzing.target import SilentDifferenceError
from strobe.cli.options.plan import read_plan
from strobe.engine.settings import Settings
from strobe.models import MODELS, make_model
from strobe.plan import Plan, PlanError
from strobe.presets import PRESETS, preset
from strobe.registry import AXES
from strobe.strategy import Strategy
from strobe.tasks import TASKS, make_task


def run_plan(rng: random.Random, folder: Path) -> str:
    """A plan file, valid or changed in a few places, through the entry of ``--plan FILE``."""
    value: Any = preset(rng.choice(sorted(PRESETS))).to_json()
    changes = rng.choice([0, 1, 1, 1, 2, 3])
    for _ in range(changes):
        value = _swapped(rng, value) if rng.random() < 0.4 else mutate(rng, value)
    text = json.dumps(value).encode()
    if damaged := rng.random() < 0.15:
        text = _damaged_text(rng, text)
    path = folder / "plan.json"
    path.write_bytes(text)
    plan = read_plan(str(path))
    _check_plan(plan, None if damaged else value)
    for ranks in (1, 4):
        try:
            plan.check(ranks)
        except PlanError:
            return "plan conflicts"
    return "plan accepted"


def _swapped(rng: random.Random, value: Any) -> Any:
    """The same plan with another choice on an axis, with some options of plausible values."""
    axis = rng.choice(sorted(AXES))
    choice = rng.choice(sorted(AXES[axis]))
    kind = AXES[axis][choice]
    made: dict[str, Any] = {"name": choice}
    hints = get_type_hints(kind)
    for each in fields(kind):
        if rng.random() < 0.4:
            made[each.name] = plausible(rng, hints[each.name]) if rng.random() < 0.7 else rng.choice(JUNK)
    text: Any = choice if rng.random() < 0.3 else made
    if not isinstance(value, dict):
        return {axis: text}
    if axis in ("structure", "time"):
        before = value.get("exchange")
        return {**value, "exchange": {**(before if isinstance(before, dict) else {}), axis: text}}
    return {**value, axis: text}


def _damaged_text(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text))
    return rng.choice(
        [
            text[:at],
            text[:at] + bytes([text[at] ^ (1 << rng.randrange(8))]) + text[at + 1 :],
            text.replace(b"null", b"NaN"),
            text.replace(b": ", b": -1e999, ", 1),
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            b"[" * 10_000,
            b'{"store": ' * 5_000,
            text[:-1] + b', "store": "full"}',
            rng.randbytes(200),
            b"",
        ]
    )


def _check_plan(plan: Plan, given: Any) -> None:
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    if again != plan:
        raise SilentDifferenceError(f"{plan} is {again} after JSON")
    for axis, choice in plan.axes():
        parts = [choice.structure, choice.time] if axis == "exchange" else [choice]
        for part in parts:
            _check_types(part)
    if isinstance(given, dict):
        _check_kept(given, plan.to_json(), "plan")


def _check_types(choice: Strategy) -> None:
    hints = get_type_hints(type(choice))
    for each in fields(choice):
        value = getattr(choice, each.name)
        if isinstance(value, Strategy):
            _check_types(value)
        elif not is_of(value, hints[each.name]):
            raise SilentDifferenceError(f"{each.name} of {choice.name} is {value!r}, not {hints[each.name]}")


def is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type: our own reading of the annotations."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str | int) and value in parts
    if origin is not None:
        return isinstance(value, list | tuple) and all(is_of(item, parts[0]) for item in value)
    if hint is float:
        return type(value) in (int, float) and -1.8e308 < value < 1.8e308
    if hint in (int, bool, str, NoneType):
        return type(value) is hint
    return isinstance(value, hint)


def _check_kept(given: Any, kept: Any, where: str) -> None:
    """Everything that was given is there again: nothing was dropped or moved to an allowed value."""
    if isinstance(given, str) and isinstance(kept, dict):
        given = {"name": given}
    if isinstance(given, Mapping):
        if not isinstance(kept, Mapping) or not given.keys() <= kept.keys():
            raise SilentDifferenceError(f"{where}: {given!r} became {kept!r}")
        for name, value in given.items():
            _check_kept(value, kept[name], f"{where}.{name}")
    elif (list(given) if isinstance(given, list | tuple) else [given]) != (
        list(kept) if isinstance(kept, list | tuple) else [kept]
    ):
        raise SilentDifferenceError(f"{where}: {given!r} became {kept!r}")


def run_options(rng: random.Random) -> str:
    """Options of models, tasks and training with odd values."""
    kind = rng.choice(["model", "task", "settings"])
    maker: Any = Settings
    name = ""
    if kind != "settings":
        name = rng.choice(sorted(MODELS if kind == "model" else TASKS))
        maker = MODELS[name].__init__ if kind == "model" else TASKS[name]
    hints = {
        option: hint for option, hint in get_type_hints(maker).items() if option not in ("inputs", "return", "name")
    }
    options: dict[str, Any] = {}
    for option in rng.sample(sorted(hints), min(len(hints), rng.choice([1, 2, 3]))):
        options[option] = plausible(rng, hints[option]) if rng.random() < 0.7 else rng.choice(JUNK)
    if rng.random() < 0.05:
        options["x"] = 1
    made: Any
    if kind == "settings":
        made = Settings().changed(options)
    elif kind == "task":
        made = make_task(name, **options)
        again = make_task(**json.loads(json.dumps(made.to_json())))
        if again != made:
            raise SilentDifferenceError(f"{made} is {again} after JSON")
    else:
        made = make_model(name, 3, **{"hidden": 4, **options})
    for option, value in options.items():
        if not is_of(value, hints[option]):
            raise SilentDifferenceError(f"{option} of {kind} {name} takes {value!r}")
        if kind != "model":
            _check_kept(value, getattr(made, option), f"{kind} {name}.{option}")
    return f"{kind} accepted"


def plausible(rng: random.Random, hint: Any) -> Any:
    """A value of a declared type, not too large."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return plausible(rng, rng.choice(parts))
    if origin is Literal:
        return rng.choice(parts)
    if origin is not None:
        return [plausible(rng, parts[0]) for _ in range(rng.choice([1, 2, 3]))]
    values: dict[Any, list[Any]] = {
        int: [1, 1, 2, 3, 4, 0],
        float: [0.1, 0.1, 0.25, 0.5, 1, 0.0],
        bool: [True, False],
        str: ["cpu", "auto"],
    }
    return None if hint is NoneType else rng.choice(values.get(hint, [None]))
