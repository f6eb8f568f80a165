"""``strobe evaluate``: how good a trained model is."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from strobe.cli.console import out
from strobe.cli.run_options import AsJsonOption, DeviceOption, GraphOption, RunArgument


def evaluate(
    run: RunArgument,
    part: Annotated[
        str, typer.Option(help="Which snapshots: train, validation, test, or all (of another graph).")
    ] = "test",
    graph: GraphOption = None,
    device: DeviceOption = None,
    as_json: AsJsonOption = False,
) -> None:
    """Score a run's best weights next to trivial answers.

    `strobe evaluate runs/social-tgcn --part validation`

    `strobe evaluate runs/social-tgcn --graph friends --part all`
    """
    from strobe.engine import evaluate as evaluate_run
    from strobe.engine import open_run
    from strobe.engine.summary import score_table, verdict
    from strobe.io.atomic import without_nan

    opened = open_run(run, graph=graph, device=device)
    found = evaluate_run(opened, part)
    if as_json:
        values = {"run": str(run), "graph": opened.job.source.name, **found.to_json()}
        typer.echo(json.dumps(without_nan(values), allow_nan=False))
        return
    problem, (first, last) = opened.problem, found.snapshots
    lines = [f"{opened.job.choice.name} on {opened.job.source.name}, snapshots {first} to {last - 1}", ""]
    lines += score_table(part, opened.job.choice.name, found.metrics, found.baselines)
    lines += [verdict(found.metrics, found.baselines, problem.metric, problem.higher_is_better)]
    out.print(Text("\n".join(lines)), soft_wrap=True)
