from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest

from strobe.errors import OptionError, UnknownNameError
from strobe.protocols import base
from strobe.protocols.base import Protocol, ProtocolRequest, ProtocolResult, PublishedRow


@dataclass(frozen=True, kw_only=True)
class Fixed(Protocol):
    value: float = 0.5

    def run(self, request: ProtocolRequest) -> ProtocolResult:
        values = tuple(self.value for _ in range(request.seeds))
        return result(seeds=request.seed_values, validation=values, test=values)


FIXED = Fixed(
    name="fixed",
    description="Always the same.",
    citation="none",
    data_sets=("one", "two"),
    models=("first", "second"),
    metric="MRR",
    snapshots="none",
    split="none",
    negatives="none",
    update="none",
)


def result(**changes: Any) -> ProtocolResult:
    values: dict[str, Any] = {
        "protocol": "fixed",
        "data": "one",
        "method": "first",
        "metric": "MRR",
        "seeds": (0, 1, 2),
        "validation": (0.2, 0.3, 0.4),
        "test": (0.1, 0.3, 0.5),
        "coverage": 1.0,
        "settings": {"hidden": 64},
        "seconds": 2.5,
    }
    return ProtocolResult(**values | changes)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_PROTOCOLS", {})
    monkeypatch.setattr(base, "BUILT_IN", {})


def test_a_result_has_the_mean_and_the_sample_deviation_of_its_seeds() -> None:
    assert result().mean == pytest.approx(0.3)
    assert result().deviation == pytest.approx(0.2)
    assert result().validation_mean == pytest.approx(0.3)
    assert result().validation_deviation == pytest.approx(0.1)


def test_one_seed_has_no_deviation() -> None:
    assert result(seeds=(0,), validation=(0.2,), test=(0.1,)).deviation is None


def test_a_result_survives_json() -> None:
    text = json.dumps(result().to_json())
    assert json.loads(text)["mean"] == pytest.approx(0.3)
    assert ProtocolResult.from_json(json.loads(text)) == result()


@pytest.mark.parametrize("changes", [{"test": (0.1,)}, {"validation": ()}, {"seeds": (), "validation": (), "test": ()}])
def test_a_result_needs_a_value_per_seed(changes: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="one value per seed"):
        result(**changes)


def test_a_registered_protocol_is_found_by_name() -> None:
    assert base.register(FIXED) is FIXED
    assert base.find_protocol("fixed") is FIXED
    assert base.list_protocols() == [FIXED]
    assert base.find_protocol("fixed").run(ProtocolRequest(seeds=2)).test == (0.5, 0.5)


def test_an_unknown_protocol_suggests_the_nearest() -> None:
    base.register(FIXED)
    with pytest.raises(UnknownNameError, match="did you mean 'fixed'"):
        base.find_protocol("fixd")


def test_a_name_is_taken_only_on_request() -> None:
    base.register(FIXED)
    base.register(FIXED)  # the same again
    other = replace(FIXED, value=0.7)
    with pytest.raises(OptionError, match="replace=True"):
        base.register(other)
    assert base.register(other, replace=True) is base.find_protocol("fixed")


def test_data_sets_and_models_default_to_the_first() -> None:
    assert (FIXED.choose_data(None), FIXED.choose_data("two")) == ("one", "two")
    assert (FIXED.choose_model(None), FIXED.choose_model("second")) == ("first", "second")
    with pytest.raises(UnknownNameError, match="did you mean 'two'"):
        FIXED.choose_data("tow")
    with pytest.raises(UnknownNameError, match="did you mean 'second'"):
        FIXED.choose_model("secnd")


@pytest.mark.parametrize("values", [{"seeds": 0}, {"epochs": -1}, {"seeds": True}, {"seeds": 1.5}])
def test_a_request_refuses_wrong_numbers(values: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        ProtocolRequest(**values)


def test_published_rows_have_a_source_and_a_confidence() -> None:
    rows = [row for rows in base.load_published().values() for row in rows]
    assert rows
    assert all(row.source and row.test > 0 for row in rows)
    assert FIXED.published() == ()
    with pytest.raises(OptionError, match="checked or second hand"):
        PublishedRow(method="m", test=0.5, source="s", confidence="guessed")  # type: ignore[arg-type]


def test_results_of_single_seeds_join_to_that_of_all() -> None:
    whole = result(settings={"hidden": 64, "epochs": [3, 1, 2], "parts": {"map": [0.1, 0.2, 0.3], "ends": [4, 5]}})
    more = {"AUC": (0.7, 0.8, 0.9)}
    singles = [
        result(
            seeds=(k,),
            validation=(whole.validation[k],),
            test=(whole.test[k],),
            more={"AUC": (more["AUC"][k],)},
            settings={
                "hidden": 64,
                "epochs": [whole.settings["epochs"][k]],
                "parts": {"map": [whole.settings["parts"]["map"][k]], "ends": [4, 5]},
            },
            seconds=1.0,
            coverage=1.0 - k / 10,
        )
        for k in range(3)
    ]
    assert ProtocolResult.join(singles) == replace(whole, more=more, seconds=3.0, coverage=0.8)
    assert ProtocolResult.from_json(json.loads(json.dumps(singles[0].to_json()))) == singles[0]
    with pytest.raises(OptionError, match="AUC"):
        result(more={"AUC": (0.5,)})


def test_seeds_are_run_one_after_the_other() -> None:
    request = ProtocolRequest(seeds=2, first_seed=5)
    assert [each.seeds for each in FIXED.run_each_seed(request)] == [(5,), (6,)]


def test_a_protocol_cannot_take_the_name_of_a_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BUILT_IN", {"fixed": "tgb:WIKI"})
    with pytest.raises(OptionError, match="replace=True"):
        base.register(FIXED)
    assert base.register(FIXED, replace=True) is base.find_protocol("fixed")


def test_names_are_known_without_importing_protocols() -> None:
    code = (
        "import sys, strobe.protocols as p; assert 'dysat' in p.protocol_names(); "
        "assert not {'torch', 'strobe.protocols.dysat'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_built_in_protocol_has_the_name_it_is_found_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [each.name for each in base.list_protocols()] == base.protocol_names()
    assert set(base.BUILT_IN).isdisjoint(base._PROTOCOLS)  # an import would be refused after a replacement
