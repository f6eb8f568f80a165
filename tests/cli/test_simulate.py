from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from strobe.cli.main import app
from strobe.cli.simulate import read_ranks
from strobe.cli.simulate_table import simulate_head, simulate_lines, simulate_tables
from strobe.errors import FormatError, OptionError, StrobeError, UnknownNameError
from strobe.graph.synthetic import Social
from strobe.planner.calibration import Calibration
from strobe.planner.linear import Linear
from strobe.planner.network import Network
from strobe.planner.simulate import Simulation
from strobe.planner.simulator import Simulated

LINE = Linear(per_cell=0.41e-6, per_arc=11e-9, fixed=1.2e-3)
COSTS = Calibration(line=LINE, time_line=LINE, step_s=0.5e-3, error=0.031, weight_bytes=100)


@pytest.fixture(autouse=True)
def friends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph called friends in the directory the command runs in."""
    monkeypatch.chdir(tmp_path)
    Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True).write().save("friends")


def run(*arguments: object, code: int = 0) -> Result:
    """What the command said; an error a user can mend is raised as in a program."""
    more = () if "--help" in arguments else ("--threads", 1)
    result = CliRunner().invoke(app, ["simulate", *map(str, (*arguments, *more))], env={"COLUMNS": "80"})
    if isinstance(result.exception, StrobeError):
        raise result.exception
    assert result.exit_code == code, (result.output, result.exception)
    return result


def simulated(num_ranks: int, epoch_s: float, idle: int = 0) -> Simulated:
    """One second of work on some ranks, of which some have none."""
    computing = np.full(num_ranks, 1.0 / (num_ranks - idle))
    computing[:idle] = 0.0
    return Simulated(
        num_ranks=num_ranks,
        num_steps=12_345,
        epoch_s=epoch_s,
        computing=computing,
        exchanging_s=0.1 * epoch_s,
        agreeing_s=0.2 * epoch_s,
        alone_s=1.0,
    )


def simulation(
    found: dict[str, list[Simulated]],
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
        found=found,
        reasons=reasons or {},
    )


def lines_of(found: Simulation) -> str:
    return " ".join(" ".join(simulate_lines(found)).split())


def test_a_block_for_every_plan_with_a_row_for_every_number_of_ranks() -> None:
    result = run("friends", "--plan", "psg:size=2,stride=2,relay", "--ranks", "1..4", "--hidden", 8)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "tgcn on friends, simulated: 10 Gbit/s, 30 µs, all-reduce in a ring"
    told = " ".join(" ".join(lines[1:]).split())  # how lines are folded depends on what was timed
    assert told.startswith("timed here (psg:size=2,stride=2): a pass costs ")
    for name in ("psg:size=2,stride=2", "relay"):
        at = lines.index(name)
        columns = "ranks epoch speed-up efficiency compute wait send agree steps uneven"
        assert lines[at + 1].split() == columns.split()
        assert [line.split()[0] for line in lines[at + 2 : at + 5]] == ["1", "2", "4"]
    assert re.search(r"the fastest on 4 ranks: (psg|relay).* an epoch; the next, ", told)
    assert "picture: simulated.svg" in result.stderr
    assert ElementTree.parse("simulated.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_json_is_one_line_and_no_picture_unless_asked_for() -> None:
    arguments = ("friends", "--plan", "psg:size=4,stride=4", "--ranks", "8,2", "--json", "--quiet")
    result = run(*arguments)
    assert result.stdout.count("\n") == 1
    told = json.loads(result.stdout)
    assert [row["ranks"] for row in told["plans"]["psg:size=4,stride=4"]] == [2, 8]
    assert not Path("simulated.svg").exists()
    assert run(*arguments, "-o", "mine.svg", "--network", "25gbit:latency=1ms").stderr == ""
    ElementTree.parse("mine.svg")


def test_model_task_window_and_seed_are_those_of_training() -> None:
    arguments = ("-m", "wd-gcn", "--model-option", "layers=2", "--task", "link-prediction", "--window", 2, "--seed", 3)
    told = json.loads(run("friends", "--ranks", 2, *arguments, "--json").stdout)
    assert told["model"] == "wd-gcn"
    [row] = told["plans"]["relay"]
    assert row["steps"] == 3  # 6 training snapshots have one after them to ask about, 2 a step


def test_messages_of_this_machine_are_timed_if_all_ranks_are_here() -> None:
    shown = run("friends", "--plan", "psg:size=4,stride=4", "--ranks", 1, "--network", "here").stdout
    assert shown.startswith("tgcn on friends, simulated: ")
    with pytest.raises(OptionError, match="10000 ranks on this machine"):
        run("friends", "--ranks", 10_000, "--network", "here")


def test_a_plan_that_does_not_fit_is_named_with_the_reason_and_ends_with_2_if_no_other_does() -> None:
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
def test_ranks_are_numbers_and_ranges_that_double(text: str, numbers: list[int]) -> None:
    assert read_ranks(text) == numbers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "say how many ranks"),
        (",", "say how many ranks"),
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
def test_ranks_that_cannot_be_are_refused_with_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_ranks(text)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["nowhere"], FormatError, "no graph at nowhere"),
        (["friends", "--plan", "psgg"], UnknownNameError, "did you mean 'psg'"),
        (["friends", "--plan", "psg:sise=2"], UnknownNameError, "did you mean 'size'"),
        (["friends", "--plan", ","], OptionError, "say which plans"),
        (["friends", "--network", "fast"], OptionError, "networks with a name are 1gbit"),
        (["friends", "--network", "10gbit:latncy=1us"], UnknownNameError, "did you mean 'latency'"),
        (["friends", "--network", "10gbit:latency=1"], OptionError, "write a number and us, ms or s"),
        (["friends", "--task-option", "ahead=2"], OptionError, "give --task"),
        (["friends", "--window", "0"], OptionError, "window must be at least 1"),
        (["friends", "-o", "friends"], OptionError, "is a directory"),
        (["friends", "-o", "notes.txt"], OptionError, "is left alone"),
        (["friends", "-o", "no/p.svg"], OptionError, "no directory"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    arguments: list[str], kind: type[StrobeError], words: str
) -> None:
    Path("notes.txt").write_text("mine")
    with pytest.raises(kind, match=words):
        run(*arguments)
    assert Path("notes.txt").read_text() == "mine"
    assert not Path("simulated.svg").exists()


def test_help_teaches_networks_by_an_example() -> None:
    shown = " ".join(run("--help").stdout.split())
    for word in ("latency=", "ranks_per_host=", "inside=", "hosts_per_rack=", "oversubscribed=", "all_reduce=", "here"):
        assert word in shown
    assert "strobe simulate social --ranks 4..1024" in shown


def test_the_head_says_what_a_pass_costs_once_for_plans_that_were_timed_together() -> None:
    rows = [simulated(2, 1.0)]
    [head, *costs] = simulate_head(simulation({"relay": rows, "metis": rows}))
    assert head == "tgcn on friends, simulated: 10 Gbit/s, 30 µs, all-reduce in a ring"
    told = (
        "timed here: a pass costs 0.41 µs a cell, 11 ns an arc and 1.2 ms, a step of the optimiser 0.5 ms; error 3.1%"
    )
    assert " ".join(" ".join(costs).split()) == told
    free = Linear(per_cell=0.0, per_arc=0.0, fixed=2.0)
    other = Calibration(line=free, time_line=free, step_s=0.5e-3, error=None, weight_bytes=1, passes=3)
    found = simulation({"a": rows, "b": rows}, calibrations={"a": COSTS, "b": other})
    told = "timed here (b): a pass costs 2 s, a step of the optimiser 0.5 ms; error not known"
    assert told in " ".join(" ".join(simulate_head(found)).split())
    assert "warning: how far b may be off is not known" in " ".join(" ".join(simulate_lines(found)).split())


def test_ranks_on_one_host_are_not_said_to_use_its_link() -> None:
    network = Network(ranks_per_host=4, inside=1.23456e9, inside_latency_s=12e-6)
    here = simulate_head(simulation({"relay": [simulated(4, 1.0)]}, network=network))
    assert here[0] == "tgcn on friends, simulated: all ranks on one host, 9.88 Gbit/s, 12 µs"
    there = simulate_head(simulation({"relay": [simulated(5, 1.0)]}, network=network))
    assert "4 ranks a host" in " ".join(there)


def test_tables_stay_within_80_columns_with_the_longest_figures() -> None:
    found = simulation({"relay": [simulated(16_384, 3599.0, idle=1), simulated(1, 1.004)]})
    [table] = simulate_tables(found).values()
    widths = [max(len(str(cell)) for cell in [column.header, *column.cells]) for column in table.columns]
    assert sum(widths) + len(widths) - 1 <= 80


def test_a_row_tells_shares_of_the_epoch_and_a_dash_where_a_rank_has_nothing() -> None:
    [table] = simulate_tables(simulation({"relay": [simulated(4, 0.5, idle=2)]})).values()
    row = [next(iter(column.cells)) for column in table.columns]
    assert row == ["4", "500 ms", "2.00", "█████", "50%", "50%", "20%", "10%", "20%", "12,345", "–"]


def test_lines_tell_where_more_ranks_stop_to_help_and_who_is_fastest_where_all_plans_are() -> None:
    relay = [simulated(1, 1.0), simulated(2, 0.6), simulated(4, 0.9)]
    assert "relay is fastest on 2 ranks: 600 ms an epoch" in lines_of(simulation({"relay": relay}))
    assert "the fastest" not in lines_of(simulation({"relay": relay}))
    psg = [simulated(2, 0.3), simulated(8, 0.1)]
    said = lines_of(simulation({"relay": relay, "psg": psg}))
    assert "psg is fastest" not in said
    assert "the fastest on 2 ranks: psg, 300 ms an epoch; the next, relay, takes 2.0 times as long" in said
    same = lines_of(simulation({"a": relay, "b": relay}))
    assert same.endswith("a, 900 ms an epoch; the next, b, takes as long")
    assert "psg does not fit: because" in lines_of(simulation({"relay": relay}, reasons={"psg": "because"}))
