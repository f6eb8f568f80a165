"""A pairwise slice of the causality campaign, and that it finds what looks ahead."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import causality_checks
from benchmarks.causality import all_cases, pairwise, run_case
from benchmarks.causality_checks import Case
from strobe.graph import DynamicGraph
from strobe.tasks import NodeRegression
from strobe.tasks.regression import RegressionProblem

CHEAP = [case for case in all_cases() if case.plan != "dgc" and case.way != "watch"]  # dgc measures memory first


@pytest.mark.parametrize("case", pairwise(CHEAP, seed=0)[:8], ids=lambda case: case.name)
def test_nothing_depends_on_the_future(case: Case) -> None:
    verdict, why = run_case(case)
    assert verdict in ("equal", "refused"), why


def test_snapshots_that_have_not_arrived_change_nothing() -> None:
    assert run_case(Case("degrees", "sage", "distdy", "watch", presence=True)) == ("equal", "")


class Clairvoyant(NodeRegression):
    """Starts from the label of the snapshot before, which becomes known only after the one that is predicted."""

    def bind(self, graph: DynamicGraph, *, seed: int = 0, state: dict[str, Any] | None = None) -> RegressionProblem:
        problem = super().bind(graph, seed=seed, state=state)
        problem.delay = 1
        return problem


@pytest.mark.parametrize("way", ["train", "evaluate"])
def test_a_label_that_is_read_too_early_is_found(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(causality_checks.TASKS, "labels", Clairvoyant(target="labels", label_delay=2, from_last=True))
    verdict, why = run_case(Case("labels", "tgcn", "relay", way, presence=False))
    assert verdict == "violation", why


def test_a_slice_holds_every_pair_of_values() -> None:
    cases = all_cases()
    chosen = pairwise(cases, seed=1)
    assert len(chosen) < len(cases) / 10
    for first, second in (("task", "model"), ("model", "plan"), ("plan", "way"), ("task", "way")):
        pairs = [{(getattr(case, first), getattr(case, second)) for case in some} for some in (cases, chosen)]
        assert pairs[0] == pairs[1]
