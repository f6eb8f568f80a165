from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import Result

from strobe.cli.commands.simulate import read_ranks, simulate_head, simulate_lines, simulate_tables
from strobe.errors import OptionError
from strobe.planner.comm.network import Network
from strobe.planner.simulate import SimulatedEpoch, Simulation
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.passes import LinearCost
from tests.support.cli_runner import run_command

LINE = LinearCost(per_cell=0.41e-6, per_arc=11e-9, fixed=1.2e-3)
COSTS = Calibration(pass_cost=LINE, time_stage_cost=LINE, step_s=0.5e-3, error=0.031, weight_bytes=100)


pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object, code: int = 0) -> Result:
    return run_command("simulate", *arguments, "--threads", 1, code=code)


def simulated(num_ranks: int, epoch_s: float, idle: int = 0) -> SimulatedEpoch:
    """One second of work on some ranks, of which some have none."""
    computing = np.full(num_ranks, 1.0 / (num_ranks - idle))
    computing[:idle] = 0.0
    parts: Any = {"compute_s": computing, "exchange_s": 0.1 * epoch_s, "sync_s": 0.2 * epoch_s, "single_rank_s": 1.0}
    return SimulatedEpoch(num_ranks=num_ranks, num_steps=12_345, epoch_s=epoch_s, **parts)


def test_every_plan_has_a_table_with_a_row_per_number_of_ranks() -> None:
    result = run("friends", "--plan", "psg:size=2,stride=2,relay", "--ranks", "1..4", "--hidden", 8)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = flat(lines)  # how lines are folded depends on what was timed
    assert "(psg:size=2,stride=2): a pass costs " in text
    for name in ("psg:size=2,stride=2", "relay"):
        at = lines.index(name)
        assert lines[at + 1].split()[:4] == ["ranks", "epoch", "speed-up", "efficiency"]
        assert [line.split()[0] for line in lines[at + 2 : at + 5]] == ["1", "2", "4"]
    assert re.search(r"the fastest on 4 ranks: (psg|relay).* an epoch; the next, ", text)
    assert "chart: simulated.svg" in result.stderr
    assert ElementTree.parse("simulated.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_json_is_one_line_and_writes_a_chart_only_with_out() -> None:
    arguments = ("friends", "--plan", "psg:size=4,stride=4", "--ranks", "8,2", "--json", "--quiet")
    result = run(*arguments)
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    assert [row["ranks"] for row in report["plans"]["psg:size=4,stride=4"]] == [2, 8]
    assert not Path("simulated.svg").exists()
    assert run(*arguments, "-o", "mine.svg", "--network", "25gbit:latency=1ms").stderr == ""
    ElementTree.parse("mine.svg")


def test_model_task_window_and_seed_match_training() -> None:
    arguments = ("-m", "wd-gcn", "--model-option", "layers=2", "--task", "link-prediction", "--window", 2, "--seed", 3)
    report = json.loads(run("friends", "--ranks", 2, *arguments, "--json").stdout)
    assert report["model"] == "wd-gcn"
    [row] = report["plans"]["relay"]
    assert row["steps"] == 3  # 6 training snapshots have one after them to ask about, 2 a step


def test_plan_that_does_not_fit_is_listed_and_exits_with_2_if_none_fits() -> None:
    Path("odd.json").write_text('{"placement": {"name": "replicated"}}')
    shown = run("friends", "--plan", "odd.json,psg:size=4,stride=4", "--ranks", 2).stdout
    assert "odd.json does not fit: placement replicated needs batches per rank" in " ".join(shown.split())
    Path("simulated.svg").unlink()
    alone = run("friends", "--plan", "odd.json", "--ranks", 2, code=2)
    assert "odd.json does not fit" in alone.stdout
    assert not Path("simulated.svg").exists()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("8", [8]), ("100, 4,8", [4, 8, 100]), ("3 .. 13", [3, 6, 12]), ("5..5", [5]), ("1..4,2..8,7,", [1, 2, 4, 7, 8])],
)
def test_ranks_are_numbers_and_doubling_ranges(text: str, numbers: list[int]) -> None:
    assert read_ranks(text) == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "many", "4-8", "1..2..4", "..8", "2.5", "0", "-4", "²", "8..4", "1..1000000"]
)
def test_invalid_ranks_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"rank"):
        read_ranks(text)


def simulation(found: dict[str, list[SimulatedEpoch]], **more: Any) -> Simulation:
    values = {"network": Network(), "calibrations": dict.fromkeys(found, COSTS), "reasons": {}, **more}
    return Simulation(graph="friends", model="tgcn", results=found, **values)


def flat(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_head_has_one_line_per_calibration() -> None:
    rows = [simulated(2, 1.0)]
    head = flat(simulate_head(simulation({"relay": rows, "metis": rows})))
    assert "a pass costs 0.41 µs a cell, 11 ns an arc and 1.2 ms, an optimizer step 0.5 ms; error 3.1%" in head
    free = LinearCost(per_cell=0.0, per_arc=0.0, fixed=2.0)
    other = Calibration(pass_cost=free, time_stage_cost=free, step_s=0.5e-3, error=None, weight_bytes=1, passes=3)
    found = simulation({"a": rows, "b": rows}, calibrations={"a": COSTS, "b": other})
    assert "(b): a pass costs 2 s" in flat(simulate_head(found))
    assert "error of b is not known" in flat(simulate_lines(found))


def test_head_omits_the_link_where_one_host_has_all_ranks() -> None:
    network = Network(ranks_per_host=4, inside=1.23456e9, inside_latency_s=12e-6)
    one_host, two_hosts = (
        flat(simulate_head(simulation({"relay": [simulated(ranks, 1.0)]}, network=network))) for ranks in (4, 5)
    )
    assert "one host, 9.88 Gbit/s, 12 µs" in one_host
    assert "4 ranks a host" in two_hosts


def test_row_has_shares_of_the_epoch_and_a_dash_for_idle_ranks() -> None:
    [table] = simulate_tables(simulation({"relay": [simulated(4, 0.5, idle=2), simulated(16_384, 3599.0)]})).values()
    row = [next(iter(column.cells)) for column in table.columns]
    assert row == ["4", "500 ms", "2.00", "█████", "50%", "50%", "20%", "10%", "20%", "12,345", "–"]
    widths = [max(len(str(cell)) for cell in [column.header, *column.cells]) for column in table.columns]
    assert sum(widths) + len(widths) - 1 <= 80


def test_lines_name_the_best_number_of_ranks_and_the_fastest_plan() -> None:
    relay, psg = [simulated(1, 1.0), simulated(2, 0.6), simulated(4, 0.9)], [simulated(2, 0.3), simulated(8, 0.1)]
    alone, both, same = (
        flat(simulate_lines(simulation(found, reasons={"odd": "because"})))
        for found in ({"relay": relay}, {"relay": relay, "psg": psg}, {"a": relay, "b": relay})
    )
    assert "relay is fastest on 2 ranks: 600 ms" in alone
    assert "the fastest on" not in alone
    assert "odd does not fit: because" in alone
    assert "psg is fastest" not in both
    assert "the fastest on 2 ranks: psg, 300 ms an epoch; the next, relay, takes 2.0 times as long" in both
    assert "b, takes as long" in same
