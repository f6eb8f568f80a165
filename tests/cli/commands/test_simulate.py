from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import Result

from strobe.cli.commands.simulate import read_ranks, simulate_head, simulate_lines, simulate_tables
from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.planner.comm.network import Network
from strobe.planner.simulate import Simulation
from strobe.planner.simulator import SimulatedEpoch
from strobe.planner.time.calibration import Calibration
from strobe.planner.time.linear import LinearCost
from tests.support.cli_runner import run_command

LINE = LinearCost(per_cell=0.41e-6, per_arc=11e-9, fixed=1.2e-3)
COSTS = Calibration(pass_cost=LINE, time_stage_cost=LINE, step_s=0.5e-3, error=0.031, weight_bytes=100)


pytestmark = pytest.mark.usefixtures("friends")


def run(*arguments: object, code: int = 0) -> Result:
    more = () if "--help" in arguments else ("--threads", 1)
    return run_command("simulate", *arguments, *more, code=code)


def simulated(num_ranks: int, epoch_s: float, idle: int = 0) -> SimulatedEpoch:
    """One second of work on some ranks, of which some have none."""
    computing = np.full(num_ranks, 1.0 / (num_ranks - idle))
    computing[:idle] = 0.0
    return SimulatedEpoch(
        num_ranks=num_ranks,
        num_steps=12_345,
        epoch_s=epoch_s,
        compute_s=computing,
        exchange_s=0.1 * epoch_s,
        sync_s=0.2 * epoch_s,
        single_rank_s=1.0,
    )


def simulation(
    found: dict[str, list[SimulatedEpoch]],
    *,
    network: Network | None = None,
    calibrations: dict[str, Calibration] | None = None,
    reasons: dict[str, str] | None = None,
) -> Simulation:
    return Simulation(
        graph="friends",
        model="tgcn",
        network=network or Network(),
        calibrations=calibrations or dict.fromkeys(found, COSTS),
        results=found,
        reasons=reasons or {},
    )


def lines_of(found: Simulation) -> str:
    return " ".join(" ".join(simulate_lines(found)).split())


def test_every_plan_has_a_table_with_a_row_per_number_of_ranks() -> None:
    result = run("friends", "--plan", "psg:size=2,stride=2,relay", "--ranks", "1..4", "--hidden", 8)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "tgcn on friends, simulated: 10 Gbit/s, 30 µs, all-reduce in a ring"
    text = " ".join(" ".join(lines[1:]).split())  # how lines are folded depends on what was timed
    assert text.startswith("timed on this machine (psg:size=2,stride=2): a pass costs ")
    for name in ("psg:size=2,stride=2", "relay"):
        at = lines.index(name)
        columns = "ranks epoch speed-up efficiency compute wait send sync steps uneven"
        assert lines[at + 1].split() == columns.split()
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


def test_local_network_times_messages_of_this_machine() -> None:
    shown = run("friends", "--plan", "psg:size=4,stride=4", "--ranks", 1, "--network", "local").stdout
    assert shown.startswith("tgcn on friends, simulated: ")
    with pytest.raises(OptionError, match=r"10000 ranks .* this machine"):
        run("friends", "--ranks", 10_000, "--network", "local")


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
    [
        ("8", [8]),
        ("100, 4,8", [4, 8, 100]),
        ("4..1024", [4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        ("3 .. 13", [3, 6, 12]),
        ("5..5", [5]),
        ("1..4,2..8,7,", [1, 2, 4, 7, 8]),
    ],
)
def test_ranks_are_numbers_and_doubling_ranges(text: str, numbers: list[int]) -> None:
    assert read_ranks(text) == numbers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give a number of ranks"),
        (",", "give a number of ranks"),
        ("many", "not 'many'"),
        ("4-8", "not '4-8'"),
        ("4...8", "not '4...8'"),
        ("1..2..4", "not '1..2..4'"),
        ("..8", "not '..8'"),
        ("2.5", "not '2.5'"),
        ("0", "at least 1 rank, not 0"),
        ("-4", "not '-4'"),
        ("²", "not '²'"),
        ("8..4", r"write 4\.\.8, not 8\.\.4"),
        ("1..1000000", "at most 16,384"),
    ],
)
def test_invalid_ranks_are_refused(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_ranks(text)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["nowhere"], FormatError, "no graph at nowhere"),
        (["friends", "--plan", "psgg"], UnknownNameError, "did you mean 'psg'"),
        (["friends", "--plan", "psg:sise=2"], UnknownNameError, "did you mean 'size'"),
        (["friends", "--plan", ","], OptionError, "give at least one plan"),
        (["friends", "--network", "fast"], OptionError, "named networks are 1gbit"),
        (["friends", "--network", "10gbit:latncy=1us"], UnknownNameError, "did you mean 'latency'"),
        (["friends", "--network", "10gbit:latency=1"], OptionError, "write a number and us, ms or s"),
        (["friends", "--task-option", "ahead=2"], OptionError, "give --task"),
        (["friends", "--window", "0"], OptionError, "window must be at least 1"),
        (["friends", "-o", "friends"], OptionError, "is a directory"),
        (["friends", "-o", "notes.txt"], OptionError, "is not replaced"),
        (["friends", "-o", "no/p.svg"], OptionError, "no directory"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], kind: type[StrobeError], words: str) -> None:
    Path("notes.txt").write_text("mine")
    with pytest.raises(kind, match=words):
        run(*arguments)
    assert Path("notes.txt").read_text() == "mine"
    assert not Path("simulated.svg").exists()


def test_help_documents_networks() -> None:
    shown = " ".join(run("--help").stdout.split())
    for word in (
        "latency=",
        "ranks_per_host=",
        "inside=",
        "hosts_per_rack=",
        "oversubscribed=",
        "all_reduce=",
        "local",
    ):
        assert word in shown
    assert "strobe simulate social --ranks 4..1024" in shown


def test_head_has_one_line_per_calibration() -> None:
    rows = [simulated(2, 1.0)]
    [head, *costs] = simulate_head(simulation({"relay": rows, "metis": rows}))
    assert head == "tgcn on friends, simulated: 10 Gbit/s, 30 µs, all-reduce in a ring"
    cost = "a pass costs 0.41 µs a cell, 11 ns an arc and 1.2 ms, an optimizer step 0.5 ms; error 3.1%"
    assert " ".join(" ".join(costs).split()) == f"timed on this machine: {cost}"
    free = LinearCost(per_cell=0.0, per_arc=0.0, fixed=2.0)
    other = Calibration(pass_cost=free, time_stage_cost=free, step_s=0.5e-3, error=None, weight_bytes=1, passes=3)
    found = simulation({"a": rows, "b": rows}, calibrations={"a": COSTS, "b": other})
    text = "timed on this machine (b): a pass costs 2 s, an optimizer step 0.5 ms; error not known"
    assert text in " ".join(" ".join(simulate_head(found)).split())
    assert "warning: the error of b is not known" in " ".join(" ".join(simulate_lines(found)).split())


def test_head_omits_the_link_where_one_host_has_all_ranks() -> None:
    network = Network(ranks_per_host=4, inside=1.23456e9, inside_latency_s=12e-6)
    one_host = simulate_head(simulation({"relay": [simulated(4, 1.0)]}, network=network))
    assert one_host[0] == "tgcn on friends, simulated: all ranks on one host, 9.88 Gbit/s, 12 µs"
    two_hosts = simulate_head(simulation({"relay": [simulated(5, 1.0)]}, network=network))
    assert "4 ranks a host" in " ".join(two_hosts)


def test_tables_fit_80_columns() -> None:
    found = simulation({"relay": [simulated(16_384, 3599.0, idle=1), simulated(1, 1.004)]})
    [table] = simulate_tables(found).values()
    widths = [max(len(str(cell)) for cell in [column.header, *column.cells]) for column in table.columns]
    assert sum(widths) + len(widths) - 1 <= 80


def test_row_has_shares_of_the_epoch_and_a_dash_for_idle_ranks() -> None:
    [table] = simulate_tables(simulation({"relay": [simulated(4, 0.5, idle=2)]})).values()
    row = [next(iter(column.cells)) for column in table.columns]
    assert row == ["4", "500 ms", "2.00", "█████", "50%", "50%", "20%", "10%", "20%", "12,345", "–"]


def test_lines_name_the_best_number_of_ranks_and_the_fastest_plan() -> None:
    relay = [simulated(1, 1.0), simulated(2, 0.6), simulated(4, 0.9)]
    assert "relay is fastest on 2 ranks: 600 ms an epoch" in lines_of(simulation({"relay": relay}))
    assert "the fastest" not in lines_of(simulation({"relay": relay}))
    psg = [simulated(2, 0.3), simulated(8, 0.1)]
    lines = lines_of(simulation({"relay": relay, "psg": psg}))
    assert "psg is fastest" not in lines
    assert "the fastest on 2 ranks: psg, 300 ms an epoch; the next, relay, takes 2.0 times as long" in lines
    same = lines_of(simulation({"a": relay, "b": relay}))
    assert same.endswith("a, 900 ms an epoch; the next, b, takes as long")
    assert "psg does not fit: because" in lines_of(simulation({"relay": relay}, reasons={"psg": "because"}))
