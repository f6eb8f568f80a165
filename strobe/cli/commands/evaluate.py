"""``strobe evaluate``: scores of a trained model."""

from __future__ import annotations

from typing import Annotated

from strobe.api import open_run
from strobe.cli.console import print_json, print_result
from strobe.cli.options.groups import option
from strobe.cli.options.run import AsJsonOption, DeviceOption, GraphOption, RunArgument
from strobe.engine import evaluate as evaluate_run
from strobe.report.summary import compare_with_baselines, score_table


def evaluate(
    run: RunArgument,
    part: Annotated[str, option("Which snapshots: train, validation, test, or all (of another graph).")] = "test",
    graph: GraphOption = None,
    device: DeviceOption = None,
    as_json: AsJsonOption = False,
) -> None:
    """Score the best weights of a run next to trivial baselines.

    `strobe evaluate runs/social-tgcn --part validation`

    `strobe evaluate runs/social-tgcn --graph friends --part all`
    """
    opened = open_run(run, graph=graph, device=device)
    result = evaluate_run(opened, part)
    if as_json:
        print_json({"run": str(run), "graph": opened.job.source.name, **result.to_json()})
        return
    problem, (first, last) = opened.problem, result.snapshots
    lines = [f"{opened.job.choice.name} on {opened.job.source.name}, snapshots {first} to {last - 1}", ""]
    lines += score_table(part, opened.job.choice.name, result.metrics, result.baselines)
    lines += [compare_with_baselines(result.metrics, result.baselines, problem.metric, problem.higher_is_better)]
    print_result(*lines)
