"""``strobe partition``: the load and the messages of every rank under a placement."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from rich.table import Table

from strobe.cli.chart_file import chart_option, choose_chart_path, write_chart
from strobe.cli.console import out, print_json, print_result, text_bar
from strobe.cli.options.groups import explicit_options, flatten_options, option
from strobe.cli.options.plan import RANKS_PANEL, override_choices
from strobe.cli.options.run import AsJsonOption, DataDirOption, DeviceOption, GraphArgument, QuietOption, StepOptions
from strobe.cli.options.training import ModelAndTaskOptions
from strobe.cli.progress import show_progress
from strobe.format import duration, file_size, format_ratio, format_short, percent, pluralize, wrap_line
from strobe.plan import Plan
from strobe.planner.partition import PartitionEstimate, RankCost, estimate_partition
from strobe.report.charts.partition import partition_svg
from strobe.report.summary import format_choice

DEFAULT_CHART = Path("partition.svg")
_BAR_WIDTH = 6
_MAX_ROWS = 32
_choice = partial(option, metavar="CHOICE", panel=RANKS_PANEL)


@flatten_options
def partition(
    graph: GraphArgument,
    *,
    by: Annotated[
        str, _choice("A placement that `strobe plans` lists, such as metis or chunks:per_rank=8.")
    ] = "chunks",
    ranks: Annotated[int, option("The number of ranks; none is started.", metavar="N", panel=RANKS_PANEL)],
    structure: Annotated[str | None, _choice("The exchange of neighbor rows.", default="halo")] = None,
    time: Annotated[str | None, _choice("The exchange of states along sequences.", default="relay")] = None,
    model_and_task: ModelAndTaskOptions,
    steps: StepOptions,
    chart: Annotated[Path | None, chart_option(DEFAULT_CHART)] = None,
    device: DeviceOption = None,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the cells, load and messages of every rank under a placement, without training.

    Cells are placed as in training. The table has the cells and arcs that every rank computes and the exact bytes that
    it sends per epoch, which depend on the model; the last line compares with the default placement. The chart shows
    owners over time.

    `strobe partition social --ranks 8`

    `strobe partition social --by metis --ranks 4 --model wd-gcn --model-option layers=2 -o metis.svg`

    Train with the placement:

    `strobe train social --ranks 8 --placement chunks`
    """
    chart = choose_chart_path(chart, DEFAULT_CHART, as_json)
    plan = override_choices(Plan(), explicit_options(placement=by, structure=structure, time=time))
    with show_progress(quiet) as progress:
        result = estimate_partition(
            graph,
            placement=plan.placement,
            exchange=plan.exchange,
            ranks=ranks,
            progress=progress,
            **model_and_task.to_arguments(),
            **explicit_options(steps, device=device, data_dir=data_dir),
        )
    if as_json:
        print_json(result.to_json())
    else:
        print_result(*partition_head(result), "")
        out.print(partition_table(result))
        print_result("", *partition_lines(result))
    if chart is not None:
        write_chart(partition_svg(result), chart, quiet)


def partition_head(result: PartitionEstimate) -> list[str]:
    """Format the model, graph and placement."""
    by = format_choice("placement", result.placement.to_json())
    what = f"{by} on {pluralize(result.num_ranks, 'rank')}, placed in {duration(result.placement_s)}"
    return wrap_line(f"{result.model} on {result.graph}: {pluralize(result.num_training, 'training snapshot')}, {what}")


def partition_table(result: PartitionEstimate) -> Table:
    """Build a table with a row per rank that fits 80 columns; loads have a mean of 1."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("load", no_wrap=True, style="cyan")
    chunks = ("chunks", "median", "largest") if result.chunk_counts else ()
    for name in ("", "cells", "arcs", "edges", "time", *chunks):
        table.add_column(name, justify="right", no_wrap=True)
    largest = max(result.relative_loads)
    rows = [
        [str(rank), text_bar(load / largest if largest else 0.0, _BAR_WIDTH), f"{load:.2f}", *_row(cost, bool(chunks))]
        for rank, (load, cost) in enumerate(zip(result.relative_loads, result.rank_costs, strict=True))
    ]
    if len(rows) > _MAX_ROWS:
        rows[_MAX_ROWS - 2 : -1] = [["…"] * len(rows[0])]
    for row in rows:
        table.add_row(*row)
    return table


def partition_lines(result: PartitionEstimate) -> list[str]:
    """Format imbalance and bytes of all ranks, and compare them with the default placement."""
    edges = sum(cost.structure_bytes for cost in result.rank_costs)
    parts = f"{file_size(edges)} along edges, {file_size(result.sent_bytes - edges)} in time"
    unit = "predicted seconds" if result.placement.needs_measured_loads else "cells and arcs"
    lines = [
        f"load, {unit}: {_format_imbalance(result.imbalance)}",
        f"sent per epoch: {file_size(result.sent_bytes)} ({parts})",
    ]
    if not result.is_default:
        lines += wrap_line(_compare_to_default(result))
    if result.is_edge_level:
        lines += wrap_line("not counted: embeddings of sampled pairs, which are unknown before training")
    return lines


def _compare_to_default(result: PartitionEstimate) -> str:
    name, ours, default = result.placement.name, result.sent_bytes, result.default_bytes
    if ours < default:
        difference = f"{name} saves {percent(1 - ours / default)} of it"
    elif ours == default:
        difference = f"{name} sends as much"
    else:
        difference = f"{name} sends {format_ratio(ours / default)} as much" if default else f"{name} sends more"
    load = _format_imbalance(result.default_imbalance)
    return f"the default, time-blocks: {file_size(default)}, {difference}; its load: {load}"


def _format_imbalance(imbalance: float | None) -> str:
    return "some ranks have no cells" if imbalance is None else f"largest over smallest {format_ratio(imbalance)}"


def _row(cost: RankCost, with_chunks: bool) -> list[str]:
    counts = [format_short(cost.cells), format_short(cost.arcs)]
    counts += [file_size(cost.structure_bytes), file_size(cost.time_bytes)]
    if with_chunks and cost.chunks is not None:
        chunks = cost.chunks
        counts += map(format_short, (chunks.num_chunks, chunks.median_cells, chunks.largest_cells))
    return counts
