"""``strobe simulate``: predicted epoch times of plans on clusters that need not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from strobe.cli.chart_file import chart_option, choose_chart_path, write_chart
from strobe.cli.console import out, print_json, print_result, text_bar
from strobe.cli.options.groups import explicit_options, flatten_options, option
from strobe.cli.options.plan import RANKS_PANEL, PlansOption, read_plans
from strobe.cli.options.run import AsJsonOption, DataDirOption, GraphArgument, QuietOption, StepOptions
from strobe.cli.options.training import MachineOptions, ModelAndTaskOptions
from strobe.cli.progress import show_progress
from strobe.errors import OptionError
from strobe.format import duration, format_count, format_ratio, percent, pluralize, wrap_line
from strobe.planner.comm.network import Network
from strobe.planner.simulate import SimulatedEpoch, Simulation, double_range
from strobe.planner.simulate import simulate as simulate_plans
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.passes import MIN_PASSES
from strobe.report.charts.simulation import simulation_svg

DEFAULT_CHART = Path("simulated.svg")
LOCAL = "local"
MAX_RANKS = 16_384
"""Counts for all pairs of more ranks would fill the memory of most machines."""

_RANKS = "Numbers of ranks: 8, or 4,8,100, or 4..1024, which doubles from 4 up to 1024. No rank is started."
_NETWORK = "The network between hosts, as above; local: all ranks on this machine, whose messages are timed."
_COLUMNS = ("ranks", "epoch", "speed-up", "efficiency", "", "compute", "wait", "send", "sync", "steps", "uneven")
_BAR_COLUMN, _BAR_WIDTH = 3, 10
_EQUAL = format_ratio(1.0)
_LEGEND = (
    "speed-up: over the compute time of one rank with the plan; compute, wait, send, sync: shares of an epoch, mean "
    "over ranks; uneven: longest compute time of a rank over the shortest"
)


@flatten_options
def simulate(
    graph: GraphArgument,
    *,
    plan: PlansOption = "relay",
    ranks: Annotated[str, option(_RANKS, metavar="N,N..N,…", panel=RANKS_PANEL)] = "1..64",
    network: Annotated[str, option(_NETWORK, metavar="LINK:OPTION=VALUE,…", panel=RANKS_PANEL)] = "10gbit",
    model_and_task: ModelAndTaskOptions,
    steps: StepOptions,
    chart: Annotated[Path | None, chart_option(DEFAULT_CHART)] = None,
    machine: MachineOptions,
    data_dir: DataDirOption = None,
    as_json: AsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict the time of an epoch on more ranks than this machine has.

    Times passes over parts of the graph on this machine for a few seconds; the plan determines what each rank computes
    and sends, and a model of the network how long messages take. Assumes ranks as fast as this machine, and no overlap
    of computation and messages. The chart shows efficiency and epoch times over ranks.

    `strobe simulate social --ranks 4..1024`

    `strobe simulate social --plan relay,psg,metis --network 25gbit:ranks_per_host=8 -m dcrnn -o plans.svg`

    `strobe simulate social --plan relay --ranks 1,2 --network local`

    **A network** is 1gbit, 10gbit, 25gbit, 100gbit, or the bandwidth of a host's link (40Gbit, 5GB), and options:

    - latency=10us: of a message between hosts

    - ranks_per_host=8: ranks that share the link; as many passes are timed at once as this machine has cores for

    - inside=20GB, inside_latency=5us: among the ranks of a host

    - hosts_per_rack=16, oversubscribed=4: the links of a rack add up to 4 times its uplink

    - all_reduce=tree: the algorithm of all-reduce; ring by default

    `--network 25gbit:latency=10us,ranks_per_host=8,inside=20GB,all_reduce=tree`
    """
    chart = choose_chart_path(chart, DEFAULT_CHART, as_json)
    with show_progress(quiet) as progress:
        result = simulate_plans(
            graph=graph,
            plans=read_plans(plan),
            ranks=read_ranks(ranks),
            network=None if network.strip().lower() == LOCAL else Network.parse(network),
            progress=progress,
            **model_and_task.to_arguments(),
            **explicit_options(steps, machine, data_dir=data_dir),
        )
    if as_json:
        print_json(result.to_json())
    else:
        _show(result)
    if not result.results:
        raise typer.Exit(2)
    if chart is not None:
        write_chart(simulation_svg(result), chart, quiet)


def read_ranks(text: str) -> list[int]:
    """Parse numbers of ranks, ascending: ``8``, ``4,8,100``, ``4..1024`` (doubling), or several of these.

    Raises:
        OptionError: the text is none of these, or a number is below 1 or above ``MAX_RANKS``.
    """
    numbers: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        numbers.update(_parse_rank_range(part))
    if not numbers:
        raise OptionError("give a number of ranks, such as --ranks 8 or --ranks 4..1024")
    if max(numbers) > MAX_RANKS:
        raise OptionError(f"{max(numbers):,} ranks are too many to simulate: at most {MAX_RANKS:,}")
    return sorted(numbers)


def _parse_rank_range(part: str) -> list[int]:
    ends = [end.strip() for end in part.split("..")]
    if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
        raise OptionError(f"ranks are written 8, or 4,8,100, or 4..1024 (doubling from 4 up to 1024), not {part!r}")
    first, last = int(ends[0]), int(ends[-1])
    if first < 1:
        raise OptionError(f"there is at least 1 rank, not {first}")
    if last < first:
        raise OptionError(f"a range of ranks ascends: write {last}..{first}, not {part}")
    return [*double_range(first, last)]


def _show(result: Simulation) -> None:
    print_result(*simulate_head(result), "")
    for name, table in simulate_tables(result).items():
        out.print(Text(name, style="bold"), soft_wrap=True)
        out.print(table)
        out.print()
    print_result(*simulate_lines(result))


def simulate_head(result: Simulation) -> list[str]:
    """Format the model, the network and the measured costs."""
    lines = wrap_line(f"{result.model} on {result.graph}, simulated: {_network_line(result)}")
    by_cost: dict[Calibration, list[str]] = {}
    for name, calibration in result.calibrations.items():
        by_cost.setdefault(calibration, []).append(name)
    for calibration, names in by_cost.items():
        plans = f" ({', '.join(names)})" if len(by_cost) > 1 else ""
        lines += wrap_line(f"timed on this machine{plans}: {_format_costs(calibration)}")
    return lines


def simulate_tables(result: Simulation) -> dict[str, Table]:
    """Build a table for each plan, with a row per number of ranks; all have equal column widths."""
    rows = {name: [_row(each) for each in epochs] for name, epochs in result.results.items()}
    every = [_COLUMNS, *(row for plan_rows in rows.values() for row in plan_rows)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return {name: _table(plan_rows, widths) for name, plan_rows in rows.items()}


def simulate_lines(result: Simulation) -> list[str]:
    """Format the legend, the best number of ranks, the fastest plan, warnings, and plans that do not fit."""
    texts = [_LEGEND] if result.results else []
    for name, rows in result.results.items():
        texts += _best_ranks(name, rows)
    lines = [line for text in (*texts, *_fastest(result), *_unknown_errors(result)) for line in wrap_line(text)]
    for name, reason in result.reasons.items():
        first, *rest = reason.splitlines()
        lines += [*wrap_line(f"{name} does not fit: {first}"), *(f"  {line}" for line in rest)]
    return lines


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name, width in zip(_COLUMNS, widths, strict=True):
        table.add_column(name, justify="right", min_width=width, no_wrap=True)
    table.columns[_BAR_COLUMN].justify, table.columns[_BAR_COLUMN].style = "left", "cyan"
    for row in rows:
        table.add_row(*row)
    return table


def _row(each: SimulatedEpoch) -> list[str]:
    parts = (float(each.compute_s.mean()), each.straggler_wait_s, each.exchange_s, each.sync_s)
    return [
        format_count(each.num_ranks),
        duration(each.epoch_s),
        _format_factor(each.speedup),
        text_bar(each.efficiency, _BAR_WIDTH),
        percent(each.efficiency),
        *(percent(part / each.epoch_s if each.epoch_s else 0.0) for part in parts),
        format_count(each.num_steps),
        "–" if each.imbalance is None else _format_factor(each.imbalance),
    ]


def _network_line(result: Simulation) -> str:
    """The network; where one host has all ranks, its link does not matter."""
    network = result.network
    most = max((each.num_ranks for rows in result.results.values() for each in rows), default=0)
    if not 1 < most <= network.ranks_per_host:
        return str(network)
    return f"all ranks on one host, {network.inside * 8e-9:.3g} Gbit/s, {_short_duration(network.inside_latency_s)}"


def _format_costs(calibration: Calibration) -> str:
    units = {"per_cell": " a cell", "per_arc": " an arc", "per_snapshot": " a snapshot", "fixed": ""}
    costs = {unit: getattr(calibration.pass_cost, name) for name, unit in units.items()}
    terms = [f"{_short_duration(seconds)}{unit}" for unit, seconds in costs.items() if seconds > 0] or ["nothing"]
    cost = f"{', '.join(terms[:-1])} and {terms[-1]}" if len(terms) > 1 else terms[0]
    error = "not known" if calibration.error is None else percent(calibration.error)
    return f"a pass costs {cost}, an optimizer step {_short_duration(calibration.step_s)}; error {error}"


def _unknown_errors(result: Simulation) -> Iterator[str]:
    for calibration in dict.fromkeys(result.calibrations.values()):
        if calibration.error is None:
            names = ", ".join(name for name, each in result.calibrations.items() if each == calibration)
            yield (
                f"warning: the error of {names} is not known: it takes passes over {MIN_PASSES} parts of the training "
                f"snapshots, and there are {calibration.passes}. Use a graph with more snapshots, or a plan with more "
                "batches"
            )


def _best_ranks(name: str, rows: Sequence[SimulatedEpoch]) -> Iterator[str]:
    best = min(rows, key=lambda each: each.epoch_s)
    if best.num_ranks < rows[-1].num_ranks:
        yield f"{name} is fastest on {pluralize(best.num_ranks, 'rank')}: {duration(best.epoch_s)} an epoch"


def _fastest(result: Simulation) -> Iterator[str]:
    """The fastest of several plans, on the largest number of ranks that all of them have."""
    if len(result.results) < 2:
        return
    common = set.intersection(*({each.num_ranks for each in rows} for rows in result.results.values()))
    if not common:
        return
    most = max(common)
    at = {name: each for name, rows in result.results.items() for each in rows if each.num_ranks == most}
    order = sorted(at, key=lambda name: at[name].epoch_s)
    first, second = (at[name].epoch_s for name in order[:2])
    factor = format_ratio(second / first if first else 1.0)
    fastest = f"the fastest on {pluralize(most, 'rank')}: {order[0]}, {duration(first)} an epoch"
    yield f"{fastest}; the next, {order[1]}, takes {'as' if factor == _EQUAL else f'{factor} as'} long"


def _format_factor(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else format_count(value)


def _short_duration(seconds: float) -> str:
    """Format seconds as 0.41 µs, 11 ns or 1.2 ms."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.1 * unit:
            return f"{seconds / unit:.2g} {name}" if seconds < 100 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e9:.2g} ns"
