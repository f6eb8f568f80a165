from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from strobe.engine.settings import Settings
from strobe.errors import OptionError, UnknownNameError
from strobe.models import MODELS, make_model
from strobe.options import check_options, describe_type, option_types
from strobe.tasks import TASKS, LinkPrediction, make_task


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epochs": value} for value in ("3", 2.5, 2**63, -(2**63), 10**400)),
        *({"lr": value} for value in (None, float("inf"), 10**400, 10**5000)),
        {"window": True},
        {"device": 0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} of training"):
        Settings(**wrong)
    assert Settings(lr=1, window=None).lr == 1  # whole numbers are numbers


def test_options_of_models_and_tasks_are_checked() -> None:
    with pytest.raises(OptionError, match="whole number or none, not '2'"):
        make_task("regression", ahead="2")
    with pytest.raises(UnknownNameError, match="'negatives'"):
        make_task("link-prediction", negative=3)
    with pytest.raises(OptionError, match="negatives"):
        LinkPrediction(negatives=1.5)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="'layers'"):
        make_model("tgcn", 2, layer=2)
    with pytest.raises(OptionError, match="batch or layer or none, not 'bach'"):
        make_model("mpnn-lstm", 2, norm="bach")
    with pytest.raises(UnknownNameError):
        check_options("tgcn", {"inputs": 3}, option_types(MODELS["tgcn"], "inputs"))


@pytest.mark.parametrize("maker", [*MODELS.values(), *TASKS.values(), Settings])
def test_every_option_type_has_a_description(maker: type) -> None:
    for name, hint in option_types(maker, "inputs").items():
        assert "typing" not in describe_type(hint), name
        assert "<" not in describe_type(hint), name


OWN_TASK = """
{future}
from dataclasses import dataclass
from strobe.tasks import NodeRegression

class Unit:
    pass

@dataclass(frozen=True, kw_only=True)
class Own(NodeRegression):
    scale: float = 1.0
    unit: Unit | None = None

class Plain(NodeRegression):
    pass

def local():
    class Inner:
        pass

    @dataclass(frozen=True, kw_only=True)
    class Hidden(NodeRegression):
        inner: {local} = None
        scale: float = 1.0
    return Hidden
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
@pytest.mark.parametrize("module", ["a_users_file", "__main__"])
def test_options_of_a_class_in_a_users_file_have_the_types_of_the_modules_that_declare_them(
    monkeypatch: pytest.MonkeyPatch, future: str, module: str
) -> None:
    there = ModuleType(module)
    monkeypatch.setitem(sys.modules, module, there)
    exec(OWN_TASK.format(future=future, local="Inner | None"), there.__dict__)
    makers = [there.__dict__["Own"], there.__dict__["Plain"], there.__dict__["local"]()]
    for maker in makers:
        assert option_types(maker)["target"] == option_types(TASKS["regression"])["target"]
        assert maker(train=0.5).to_json()["train"] == 0.5
        with pytest.raises(OptionError, match="ahead of"):
            maker(ahead="2")
    for maker in (makers[0], makers[2]):
        with pytest.raises(OptionError, match="scale of"):
            maker(scale="x")


def test_options_without_a_type_may_be_anything() -> None:
    def maker(inputs: int, width=3, *rest: int, **more: int) -> None:  # type: ignore[no-untyped-def]
        pass

    assert option_types(maker, "inputs") == {"width": Any}
    check_options("maker", {"width": "x"}, option_types(maker))
