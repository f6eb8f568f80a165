"""A simulation as tables that fit 80 columns, one for each plan, and a few lines on the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from strobe.engine.summary import duration, folded
from strobe.numbers import count, number_of, percent, times
from strobe.planner.calibration import Calibration
from strobe.planner.pass_times import FEWEST_PASSES
from strobe.planner.simulate import Simulation
from strobe.planner.simulator import Simulated

_COLUMNS = ("ranks", "epoch", "speed-up", "efficiency", "", "compute", "wait", "send", "agree", "steps", "uneven")
_BAR_AT, _BAR = 3, 10
_SAME = times(1.0)
_LEGEND = (
    "speed-up: over what one rank would compute, by the same plan; compute, wait, send, agree: parts of an epoch of a "
    "mean rank; uneven: fullest rank to emptiest"
)


def simulate_tables(found: Simulation) -> dict[str, Table]:
    """A row per number of ranks, by plan: what an epoch takes, how much faster than one rank, and where it goes."""
    rows = {name: [_told(each) for each in simulated] for name, simulated in found.found.items()}
    every = [_COLUMNS, *(row for of_plan in rows.values() for row in of_plan)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return {name: _table(of_plan, widths) for name, of_plan in rows.items()}


def simulate_head(found: Simulation) -> list[str]:
    """What is shown, how ranks are connected, and what was timed, above the tables."""
    lines = folded(f"{found.model} on {found.graph}, simulated: {_connected(found)}")
    by_cost: dict[Calibration, list[str]] = {}
    for name, calibration in found.calibrations.items():
        by_cost.setdefault(calibration, []).append(name)
    for calibration, names in by_cost.items():
        who = f" ({', '.join(names)})" if len(by_cost) > 1 else ""
        lines += folded(f"timed here{who}: {_costs(calibration)}")
    return lines


def simulate_lines(found: Simulation) -> list[str]:
    """What columns mean, where more ranks make a plan slower, who is fastest on the most, and who is not there."""
    lines: list[str] = []
    if found.found:
        lines += folded(_LEGEND)
    for name, rows in found.found.items():
        lines += [line for said in _gains(name, rows) for line in folded(said)]
    lines += [line for said in _fastest(found) for line in folded(said)]
    lines += [line for said in _unknown_errors(found) for line in folded(said)]
    for name, reason in found.reasons.items():
        first, *rest = reason.splitlines()
        lines += [*folded(f"{name} does not fit: {first}"), *(f"  {line}" for line in rest)]
    return lines


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for at, (name, width) in enumerate(zip(_COLUMNS, widths, strict=True)):
        is_bar = at == _BAR_AT
        table.add_column(
            name,
            justify="left" if is_bar else "right",
            style="cyan" if is_bar else None,
            min_width=width,
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*row)
    return table


def _told(each: Simulated) -> list[str]:
    parts = (float(each.computing.mean()), each.waiting_s, each.exchanging_s, each.agreeing_s)
    return [
        count(each.num_ranks),
        duration(each.epoch_s),
        _factor(each.speedup),
        _bar(each.efficiency),
        percent(each.efficiency),
        *(percent(part / each.epoch_s if each.epoch_s else 0.0) for part in parts),
        count(each.num_steps),
        "–" if each.imbalance is None else _factor(each.imbalance),
    ]


def _connected(found: Simulation) -> str:
    """How ranks are, in words: where one host has them all, its link is of no matter."""
    network = found.network
    most = max((each.num_ranks for rows in found.found.values() for each in rows), default=0)
    if not 1 < most <= network.ranks_per_host:
        return str(network)
    return f"all ranks on one host, {network.inside * 8e-9:.3g} Gbit/s, {_small(network.inside_latency_s)}"


def _costs(calibration: Calibration) -> str:
    line = calibration.line
    parts = [
        (line.per_cell, " a cell"),
        (line.per_arc, " an arc"),
        (line.per_snapshot, " a snapshot"),
        (line.fixed, ""),
    ]
    told = [f"{_small(seconds)}{what}" for seconds, what in parts if seconds > 0] or ["nothing"]
    cost = f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]
    error = "not known" if calibration.error is None else percent(calibration.error)
    return f"a pass costs {cost}, a step of the optimiser {_small(calibration.step_s)}; error {error}"


def _unknown_errors(found: Simulation) -> Iterator[str]:
    for calibration in dict.fromkeys(found.calibrations.values()):
        if calibration.error is None:
            names = ", ".join(name for name, each in found.calibrations.items() if each == calibration)
            yield (
                f"warning: how far {names} may be off is not known: that takes passes over {FEWEST_PASSES} parts of "
                f"the training snapshots, and there are {calibration.passes}. Take a graph with more snapshots, or a "
                "plan with more batches"
            )


def _gains(name: str, rows: Sequence[Simulated]) -> Iterator[str]:
    """Where more ranks make it slower."""
    best = min(rows, key=lambda each: each.epoch_s)
    if best.num_ranks < rows[-1].num_ranks:
        yield f"{name} is fastest on {number_of(best.num_ranks, 'rank')}: {duration(best.epoch_s)} an epoch"


def _fastest(found: Simulation) -> Iterator[str]:
    """Of several plans, on the most ranks that all of them have."""
    if len(found.found) < 2:
        return
    common = set.intersection(*({each.num_ranks for each in rows} for rows in found.found.values()))
    if not common:
        return
    most = max(common)
    at = {name: each for name, rows in found.found.items() for each in rows if each.num_ranks == most}
    order = sorted(at, key=lambda name: at[name].epoch_s)
    first, second = (at[name].epoch_s for name in order[:2])
    factor = times(second / first if first else 1.0)
    who = f"the fastest on {number_of(most, 'rank')}: {order[0]}, {duration(first)} an epoch"
    yield f"{who}; the next, {order[1]}, takes {'as' if factor == _SAME else f'{factor} as'} long"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else count(value)


def _small(seconds: float) -> str:
    """0.41 µs, 11 ns, 1.2 ms."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.1 * unit:
            return f"{seconds / unit:.2g} {name}" if seconds < 100 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e9:.2g} ns"


def _bar(share: float) -> str:
    """Of full and partial blocks; all of it is 1."""
    whole, eighths = divmod(round(min(share, 1.0) * _BAR * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")
