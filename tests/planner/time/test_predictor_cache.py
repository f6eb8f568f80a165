from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strobe.engine.inputs.model_choice import choose_model
from strobe.engine.progress import Progress
from strobe.io.cache import Cache
from strobe.models import make_model
from strobe.placement.model_costs import CellSetSizes
from strobe.planner import get_predictor
from strobe.planner.time import predictor_cache
from strobe.planner.time.chunks import ChunkRanges, ChunkTimes, measure
from tests.support.pass_times import invented

SOME = CellSetSizes(*(np.array(each) for each in ([1_000], [5_000], [100])))


def cache_in(folder: Path) -> Cache:
    """A cache that saves whatever took no time."""
    return Cache(folder=folder, min_seconds=0.0)


class Counting:
    """Stands in for measuring: gives invented times at once and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def __call__(self, bench: Any, chunks: Any, **options: Any) -> ChunkTimes:
        self.calls.append(list(chunks))
        return invented(20, seed=len(self.calls))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(predictor_cache, "measure", counting)
    monkeypatch.setattr(predictor_cache, "cap_ranges", lambda bench, ranges, like: ranges)
    return counting


def test_what_was_learned_is_used_again_for_all_widths_unless_the_file_is_damaged(
    measured: Counting, tmp_path: Path
) -> None:
    first = get_predictor(choose_model("tgcn"), 8, cache=cache_in(tmp_path))
    again = get_predictor(choose_model("tgcn", {"hidden": 64}), 3, cache=cache_in(tmp_path))
    assert len(measured.calls) == 1
    np.testing.assert_array_equal(first.loads(8, 32)(SOME), again.loads(8, 32)(SOME))
    (path,) = (tmp_path / "workload").iterdir()
    path.write_bytes(b"damaged")
    for _ in range(2):
        get_predictor(choose_model("tgcn"), 8, cache=cache_in(tmp_path))
    assert len(measured.calls) == 2


def test_what_was_learned_of_something_else_is_not(
    measured: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"choice": choose_model("tgcn"), "features": 8, "cache": cache_in(tmp_path), "threads": 1}
    others: list[dict[str, Any]] = [
        {},
        {"choice": choose_model("tgcn", {"layers": 2})},
        {"choice": choose_model("wd-gcn")},
        {"choice": choose_model("tgcn", {"hidden": 20})},
        {"directed": False},
        {"threads": 7},
        {"dtype": torch.float64},
    ]
    for number, other in enumerate(others * 2, 1):
        get_predictor(**given | other)
        assert len(measured.calls) == min(number, len(others)), "once each"
    monkeypatch.setattr(predictor_cache, "processor_name", lambda: "abacus")
    get_predictor(**given)
    assert len(measured.calls) == len(cache_in(tmp_path).entries()) == len(others) + 1


def test_a_width_out_of_range_is_measured_beside_those_before(measured: Counting, tmp_path: Path) -> None:
    get_predictor(choose_model("tgcn"), 8, cache=cache_in(tmp_path))
    wider = get_predictor(choose_model("tgcn", {"hidden": 512}), 8, cache=cache_in(tmp_path))
    both = get_predictor(choose_model("tgcn"), 700, cache=cache_in(tmp_path))
    assert (wider.ranges.hidden, both.ranges.hidden, both.ranges.features) == ((16, 512), (16, 512), (1, 700))
    get_predictor(choose_model("tgcn", {"hidden": 512}), 700, cache=cache_in(tmp_path))
    assert len(measured.calls) == 3


def test_an_odd_width_is_measured_alone_and_heads_share_every_width(measured: Counting, tmp_path: Path) -> None:
    get_predictor(choose_model("tgcn", {"hidden": 20}), 8, cache=cache_in(tmp_path))
    get_predictor(choose_model("dysat", {"hidden": 48, "heads": 3}), 8, cache=cache_in(tmp_path))
    odd, heads = measured.calls
    assert {chunk.hidden for chunk in odd} == {20}
    assert len({chunk.features for chunk in odd}) > 10
    assert all(chunk.hidden % 48 == 0 for chunk in heads)


def test_a_model_of_ones_own_is_measured_every_time_with_its_widths(measured: Counting, tmp_path: Path) -> None:
    module = make_model("tgcn", 5, hidden=24)
    before = [parameter.clone() for parameter in module.parameters()]
    for _ in range(2):
        get_predictor(choose_model(module), 5, cache=cache_in(tmp_path))
    assert not list(tmp_path.iterdir())
    assert {(chunk.features, chunk.hidden) for call in measured.calls for chunk in call} == {(5, 24)}
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_predictors_are_kept_in_the_users_cache_and_a_folder_that_cannot_be_written_is_noted(
    measured: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    class Listener(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    get_predictor(choose_model("tgcn"), 8)
    (entry,) = Cache.of_user().entries()
    assert entry.subject == "tgcn"
    assert entry.path.is_relative_to(tmp_path)
    get_predictor(choose_model("tgcn"), 8, cache=cache_in(entry.path / "folder"), progress=Listener())
    assert "error" in notes[0]
    assert "could not be cached" in notes[1]


@pytest.mark.parametrize("name", ["tgcn", "evolvegcn-o"])
def test_a_model_is_measured_learned_and_priced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []

    class Listener(Progress):
        def stage(self, what: str, done: int, total: int | None) -> None:
            stages.append(what)

    small = ChunkRanges(cells=(50, 200), arcs=1_000)
    monkeypatch.setattr(predictor_cache, "cap_ranges", lambda bench, ranges, like: small)
    monkeypatch.setattr(
        predictor_cache, "measure", lambda *given, **options: measure(*given, **options | {"min_chunks": 6})
    )
    found = get_predictor(choose_model(name), 4, seconds=0.0, cache=cache_in(tmp_path), progress=Listener())
    assert len(found.times) == 6
    assert (found.time is None) == (name == "evolvegcn-o")
    assert (found.loads(4, 32)(SOME) > 0).all()
    assert {what.split()[0] for what in stages} == {"measuring", "fitting"}
