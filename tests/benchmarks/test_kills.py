"""A slice of the kill campaign: whatever is killed goes on to the same bits and leaves nothing behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.killing.case import Case, Outcome, Undisturbed, run_case, undisturbed
from benchmarks.killing.disturb import Disturbance
from benchmarks.killing.processes import forked, wait
from benchmarks.killing.works import WORKS, load_modules, prepare
from benchmarks.kills import QUICK, cases, figures

ALONE = [name for name, work in WORKS.items() if work.ranks == 1]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    load_modules()
    assert wait(forked(lambda: prepare(folder / "given"), folder / "log"), 120.0) == 0, (folder / "log").read_text()
    return folder / "given"


@pytest.fixture(scope="module")
def wanted(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Undisturbed]:
    """What each work gives where it is left alone; run once."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return cache(lambda name: undisturbed(WORKS[name], given, folder / name, check=False))


@pytest.mark.parametrize("name", ALONE)
def test_a_work_killed_before_a_file_system_call_resumes_to_the_same_bits(
    name: str, given: Path, wanted: Callable[[str], Undisturbed], tmp_path: Path
) -> None:
    number = random.Random(name).randrange(1, max(wanted(name).calls // 2, 3))  # how often it saves varies
    case = Case(work=name, kind="call", inside=Disturbance(kill_at=number))
    outcome = run_case(case, wanted(name), given, tmp_path / "case")
    assert outcome.well, outcome
    assert outcome.kills


def test_a_clock_that_jumps_changes_nothing(given: Path, wanted: Callable[[str], Undisturbed], tmp_path: Path) -> None:
    case = Case(work="train", kind="clock", inside=Disturbance(clock_seed=1))
    outcome = run_case(case, wanted("train"), given, tmp_path / "case")
    assert outcome.well, outcome


def test_a_campaign_has_cases_of_every_kind_for_every_work() -> None:
    found = {name: Undisturbed("", 20, 40, 1.0) for name in WORKS}
    kinds = {(case.work, case.kind) for case in cases(found, QUICK, random.Random(0))}
    for name in ALONE:
        assert {kind for work, kind in kinds if work == name} == {"call", "write", "moment", "twice", "clock", "memory"}
    assert {kind for work, kind in kinds if work == "ranks"} == {"call", "moment"}


def test_a_run_that_cannot_go_on_is_blocked_and_one_with_other_bits_not_identical() -> None:
    case = Case(work="train", kind="twice")
    good = Outcome(case, kills=2, resumed=True, identical=True)
    other = Outcome(case, kills=1, resumed=True)
    blocked = Outcome(case, kills=1)
    found = figures([good, other, blocked])
    assert [found[name] for name in ("kills", "resumed", "identical", "blocked")] == [4, 3, 2, 1]
    assert [each.well for each in (good, other, blocked)] == [True, False, False]
