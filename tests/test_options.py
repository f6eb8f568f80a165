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
    "wrong", [{"epochs": "3"}, {"epochs": 2.5}, {"window": True}, {"lr": float("inf")}, {"lr": None}, {"device": 0}]
)
def test_settings_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(wrong))} of training must be"):
        Settings(**wrong)


def test_whole_numbers_are_numbers_and_none_is_allowed_where_it_means_something() -> None:
    assert Settings(lr=1, window=None).lr == 1


def test_task_options_are_checked() -> None:
    with pytest.raises(OptionError, match="ahead of regression must be a whole number or none, not '2'"):
        make_task("regression", ahead="2")
    with pytest.raises(UnknownNameError, match="did you mean 'negatives'"):
        make_task("link-prediction", negative=3)
    with pytest.raises(OptionError, match="negatives"):
        LinkPrediction(negatives=1.5)  # type: ignore[arg-type]


def test_model_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'layers'"):
        make_model("tgcn", 2, layer=2)
    with pytest.raises(OptionError, match="norm of mpnn-lstm must be batch or layer or none, not 'bach'"):
        make_model("mpnn-lstm", 2, norm="bach")


@pytest.mark.parametrize("maker", [*MODELS.values(), *TASKS.values(), Settings])
def test_every_option_type_has_a_description(maker: type) -> None:
    for name, hint in option_types(maker, "inputs").items():
        assert "typing" not in describe_type(hint), name
        assert "<" not in describe_type(hint), name


def test_excluded_parameters_are_no_options() -> None:
    with pytest.raises(UnknownNameError):
        check_options("tgcn", {"inputs": 3}, option_types(MODELS["tgcn"], "inputs"))


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
    with pytest.raises(OptionError, match="scale of"):
        makers[0](scale="x")
    with pytest.raises(OptionError, match="scale of"):
        makers[2](scale="x")


def test_options_without_a_type_may_be_anything() -> None:
    def maker(inputs: int, width=3, *rest: int, **more: int) -> None:  # type: ignore[no-untyped-def]
        pass

    assert option_types(maker, "inputs") == {"width": Any}
    check_options("maker", {"width": "x"}, option_types(maker))


@pytest.mark.parametrize("huge", [2**63, -(2**63), 10**400])
def test_numbers_that_no_array_can_hold_are_refused(huge: int) -> None:
    with pytest.raises(OptionError, match="epochs of training"):
        Settings(epochs=huge)


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(OptionError, match="lr of training"):
        Settings(lr=10**400)
    with pytest.raises(OptionError, match="lr of training"):
        Settings(lr=10**5000)
