from __future__ import annotations

import json
from typing import Any

import pytest

import strobe
from strobe.engine.settings import Settings
from strobe.errors import OptionError, UnknownNameError
from tests.support.runs import small_graph


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: 0} for name in ("epochs", "window", "recompute", "threads", "evaluate_every", "lr")),
        *({name: -1} for name in ("patience", "clip", "weight_decay", "seed")),
        {"lr": float("nan")},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Settings(**wrong)


def test_settings_survive_json() -> None:
    settings = Settings(epochs=3, window=2, clip=0.5)
    assert Settings(**json.loads(json.dumps(settings.to_json()))) == settings


def test_changes_are_checked_like_new_settings() -> None:
    assert Settings().changed({"lr": 0.5}).lr == 0.5
    with pytest.raises(OptionError, match="epochs"):
        Settings().changed({"epochs": 0})
    with pytest.raises(UnknownNameError, match="did you mean 'window'"):
        Settings().changed({"windw": 2})


def test_what_is_no_plan_is_refused_in_words() -> None:
    with pytest.raises(OptionError, match="a plan is a Plan or the name of a preset, not 7"):
        strobe.train(small_graph(), "tgcn", plan=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["lr", "weight_decay", "clip"])
@pytest.mark.parametrize("value", [1e39, float("inf"), float("nan")])
def test_a_factor_that_overflows_float32_is_refused(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=name if name != "lr" else "lr|learning rate"):
        Settings().changed({name: value})
