"""What the quality benchmark concludes from runs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.quality import beside_rules, best_model, jobs
from benchmarks.quality_sets import CASES


def record_of(tests: list[float], validation: float = 0.9) -> dict[str, Any]:
    """A link set of two models, the first of which is best in validation with these test metrics."""
    best = [{"test": each, "validation": validation} for each in tests]
    other = [{"test": 1.0, "validation": 0.1}]
    return {
        "higher_is_better": True,
        "baselines": {"history": 0.5, "most recent": 0.4, "edgebank": 0.99},
        "models": {"best": sum(tests) / len(tests), "other": 1.0},
        "runs": {"best": best, "other": other},
    }


@pytest.mark.parametrize(
    ("tests", "side"),
    [([0.61, 0.59], 1), ([0.41, 0.39], -1), ([0.5, 0.6], 0), ([0.4, 0.5], 0), ([0.51], 1)],
)
def test_a_set_is_above_or_below_by_more_than_the_deviation_of_the_model_chosen_by_validation(
    tests: list[float], side: int
) -> None:
    found = record_of(tests)
    assert best_model(found) == "best"
    assert beside_rules(found) == side


def test_every_case_has_a_name_of_its_own_and_jobs_begin_with_the_longest_of_the_first_seed() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    found = jobs(quick=False, only=names)
    assert len(found) == sum(4 * len(case.seeds) for case in CASES)
    longest = max(CASES, key=lambda case: case.cost).name
    assert [job["case"] for job in found[:4]] == [longest] * 4
    assert [job["seed"] for job in found] == sorted(job["seed"] for job in found)
