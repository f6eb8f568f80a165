"""A slice of the matrix of awkward graphs: the whole is ``python -m benchmarks.awkward``."""

from __future__ import annotations

import pytest

from benchmarks.awkward import Case, all_cases, pairwise_cases, run_case
from benchmarks.awkward_graphs import GRAPHS
from strobe.models import MODELS
from strobe.tasks import TASKS

CASES = [case for k, case in enumerate(pairwise_cases(0)) if k % 3 == k // 3 % 3]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers of 3e38 overflow, as they may
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_awkward_graph_is_trained_on_or_refused(case: Case) -> None:
    verdict = run_case(case, 0)
    assert verdict.outcome in ("trained", "refused"), verdict.detail


def test_the_slice_meets_every_graph_model_and_task() -> None:
    assert len(GRAPHS) == 34
    assert {case.graph for case in CASES} == set(GRAPHS)
    assert {case.model for case in CASES} == set(MODELS)
    assert {case.task for case in CASES} == set(TASKS)


def test_the_pairwise_cases_have_every_graph_with_every_task_and_every_model_with_every_task() -> None:
    cases = pairwise_cases(3)
    assert {(case.graph, case.task) for case in cases} == {(case.graph, case.task) for case in all_cases()}
    assert {(case.model, case.task) for case in cases} == {(case.model, case.task) for case in all_cases()}
