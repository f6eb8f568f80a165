"""``strobe compare``: the costs of several plans on equal work."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from strobe.cli.console import print_json, print_result
from strobe.cli.errors import RunInterruptedError
from strobe.cli.options.groups import explicit_options, flatten_options, option
from strobe.cli.options.plan import RANKS_PANEL, BackendOption, DeadlineOption, PlansOption, read_plans
from strobe.cli.options.run import TRAIN_PANEL, AsJsonOption, DataDirOption, GraphArgument, QuietOption
from strobe.cli.options.training import DEFAULT_MODEL, MachineOptions, ModelAndTaskOptions, TrainingOptions
from strobe.cli.progress import show_progress
from strobe.comm.ledger_stats import significant_kinds
from strobe.compare import PlanResult, add_loss_differences, sort_by_epoch_time
from strobe.compare import compare as compare_plans
from strobe.format import align_columns, duration, file_size, format_metric, format_ratio, percent, pluralize

_NOISE = 1.1  # epochs that differ by a smaller factor may swap places in another run
_EQUAL_LOSS = 1e-4


@flatten_options
def compare(
    graph: GraphArgument,
    *,
    plans: PlansOption = "pss,pts,pss-ts,relay",
    ranks: Annotated[int, option("Processes on this machine.", metavar="N", panel=RANKS_PANEL)] = 2,
    deadline: DeadlineOption = None,
    backend: BackendOption = None,
    model_and_task: ModelAndTaskOptions,
    epochs: Annotated[
        int, option("Passes over the training snapshots; the first is not measured.", panel=TRAIN_PANEL)
    ] = 5,
    training: TrainingOptions,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train with several plans, one after the other, and compare their costs.

    Graph, model, task, seed and settings are equal; there are a few epochs, no evaluation, and no run directory. A
    plan that does not fit is listed with the reason; the other plans still run.

    `strobe compare social --ranks 4`

    `strobe compare social --plans relay,relay:pipeline_groups=1,pts --ranks 4 --model dcrnn --epochs 10`

    `strobe compare social --plans relay,mine.json --json > compared.json`

    Exact plans that take equal steps reach equal losses.
    """
    chosen, model = read_plans(plans), model_and_task.model or DEFAULT_MODEL
    results, complete = _run_plans(
        quiet,
        graph=graph,
        plans=chosen,
        ranks=ranks,
        **model_and_task.to_arguments(),
        **explicit_options(training, machine, epochs=epochs, deadline_s=deadline, backend=backend, data_dir=data_dir),
    )
    if as_json:
        report = {"graph": graph, "model": model, "ranks": ranks, "epochs": epochs}
        report["plans"] = [each.to_json() for each in results]
        print_json(report)
    else:
        head = f"{model} on {graph}: {pluralize(ranks, 'rank')}, {pluralize(epochs, 'epoch')}"
        print_result(head, "", *compare_table(results))
    if not complete:
        raise RunInterruptedError(f"stopped: {len(results)} of {pluralize(len(chosen), 'plan')} were compared")
    if all(each.reason is not None for each in results):
        raise typer.Exit(2)


def _run_plans(quiet: bool, *, ranks: int, **arguments: Any) -> tuple[list[PlanResult], bool]:
    """Run the plans; returns their results and whether all of them ran: Ctrl-C ends with those that did."""
    done: list[PlanResult] = []
    with show_progress(quiet, ranks) as progress:

        def on_plan(name: str, number: int, total: int) -> None:
            progress.title = f"{name} ({number}/{total})"

        try:
            results = compare_plans(**arguments, ranks=ranks, progress=progress, on_plan=on_plan, on_result=done.append)
        except KeyboardInterrupt:
            return add_loss_differences(done), False
    return results, True


def compare_table(results: Sequence[PlanResult]) -> list[str]:
    """Format results in 80 columns: costs, bytes by kind, reasons of plans that did not run, and the fastest plan."""
    ran = [each for each in results if each.reason is None]
    lines = [*_costs(ran), ""] if ran else []
    if any(each.sent for each in ran):
        lines += [*_bytes_by_kind(ran), ""]
    for each in results:
        if each.reason is not None:
            first, *rest = each.reason.splitlines()
            lines += [f"{each.name} did not run: {first}", *(f"  {line}" for line in rest), ""]
        if each.only_profiled:
            lines += [f"{each.name} only profiled its batches, to order them later: give more --epochs", ""]
    return [*lines, *textwrap.wrap(_fastest(results), 80)]


def _costs(ran: Sequence[PlanResult]) -> list[str]:
    rows = [["plan", "epoch", "exposed", "time load", "work load", "memory", "loss", "difference"]]
    rows += [
        [
            each.name,
            duration(each.epoch_s or 0.0),
            "–" if each.exposed_share is None else percent(each.exposed_share),
            _format_factor(each.compute_imbalance),
            _format_factor(each.work_imbalance),
            file_size(each.memory_bytes or 0),
            format_metric(each.loss),
            "–" if each.loss_difference is None else f"{each.loss_difference:+.2g}" if each.loss_difference else "0",
        ]
        for each in ran
    ]
    note = "loads: the largest of a rank over the smallest (compute time; cells and arcs)"
    return [*align_columns(rows, text_columns=1, gap=2), note]


def _bytes_by_kind(ran: Sequence[PlanResult]) -> list[str]:
    kinds = sorted(
        {kind for each in ran for kind in significant_kinds(each.sent)}, key=lambda kind: (kind == "gradients", kind)
    )
    rows = [["sent per epoch", *kinds, "other", "total"]]
    for each in ran:
        shown = [each.sent.get(kind, 0) for kind in kinds]
        sizes = (*shown, each.sent_bytes - sum(shown), each.sent_bytes)
        rows.append([each.name, *(file_size(size) if size else "–" for size in sizes)])
    return align_columns(rows, text_columns=1, gap=2)


def _fastest(results: Sequence[PlanResult]) -> str:
    order = sort_by_epoch_time(results)
    if not order:
        return "no plan ran"
    best = order[0]
    assert best.epoch_s is not None
    text = f"{best.name} has the fastest epoch, {duration(best.epoch_s)}"
    if len(order) > 1 and order[1].epoch_s and best.epoch_s:
        factor = order[1].epoch_s / best.epoch_s
        text += f"; the next, {order[1].name}, takes {format_ratio(factor)} as long"
        text += "" if factor > _NOISE else ", which more --epochs might change"
    fewest = min(order, key=lambda each: each.sent_bytes)
    if fewest.sent_bytes < best.sent_bytes:
        text += f"; {fewest.name} sends the fewest bytes, {file_size(fewest.sent_bytes)}"
    if any(abs(each.loss_difference or 0.0) > _EQUAL_LOSS * abs(each.loss or 0.0) for each in order):
        text += "; losses differ where a plan takes other steps or is approximate"
    return text


def _format_factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}"
