"""The comparison of ranks with one rank, on threads without a GPU."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.nccl import TOLERANCES, cases, failures, work_on_rank
from strobe.models import MODELS
from tests.support.ranks import threads_for_processes


def test_all_models_are_compared_in_each_precision() -> None:
    found = cases(quick=False)
    assert {(model, precision) for _, model, precision in found} == {
        (model, precision) for model in MODELS for precision in TOLERANCES
    }
    quick = cases(quick=True)
    assert set(quick) < set(found)
    assert {precision for *_, precision in quick} == set(TOLERANCES)


@pytest.mark.usefixtures("ranks_are_threads")
def test_ranks_that_are_threads_do_not_differ_from_one_rank() -> None:
    chosen = [("relay", "tgcn", "float64"), ("hash", "dysat", "float32")]
    found = threads_for_processes(partial(work_on_rank, chosen, 2, "cpu"), 2)[0]
    assert [set(result) for result in found["cases"].values()] == [{"loss", "gradients"}] * 2
    assert failures(found) == {}
    assert found["distinct_losses"] == 1


def test_a_difference_above_the_tolerance_of_its_precision_is_a_failure() -> None:
    wrong = {"loss": 0.0, "gradients": 1e-8}
    results = {"hash sage float64": wrong, "hash sage float32": wrong, "pss sage float64": {"refused": "no"}}
    assert failures({"cases": results}) == {"hash sage float64": wrong}
