from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.fuzzing.campaign import run_input
from benchmarks.fuzzing.run_files import RunFiles


def test_damaged_runs_plans_and_options_are_refused_or_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    target, outcomes, findings = RunFiles(), Counter[str](), []
    target.setup(tmp_path / "cache")
    for k in range(80):
        verdict, detail = run_input(target, f"slice.{k}", tmp_path / "input")
        outcomes[verdict] += 1
        findings += [f"runs:slice.{k} {verdict}\n{detail}"] if detail else []
    assert not findings
    assert any("accepted" in outcome for outcome in outcomes)
    assert any("refused" in outcome for outcome in outcomes)
