"""Runs over a real network between two hosts, which are namespaces of this machine: tests/support/hosts.py."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import strobe
from strobe.engine.records.run_directory import CONFIG, LINES
from strobe.graph.synthetic import Social
from tests.support.hosts import Host, Hosts, Job, NoHostsError, start_ranks, start_torchrun, switched_hosts, two_hosts
from tests.support.runs import small_graph

MakeHosts = Callable[[str], Hosts]
STARTED_S = 90.0
"""How long a job may take to begin on a busy machine."""
DEADLINE_S = 3
STOPPED = r"rank {} stopped in epoch \d+, step \d+, \w+: \w+ .+ failed: .+"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder of which each host has its own."""
    return tmp_path / "disk"


@pytest.fixture
def hosts_at(disk: Path) -> Iterator[MakeHosts]:
    """Makes two hosts with a link of some rate."""
    with ExitStack() as left_behind:

        def make(rate: str) -> Hosts:
            try:
                return left_behind.enter_context(two_hosts(disk, rate))
            except NoHostsError as error:
                pytest.skip(f"no hosts: {error}")

        yield make


def lines(host: Host, run: Path) -> list[dict[str, Any]]:
    """The record of a run, as far as it is written."""
    try:
        written = host.outside_path(run / LINES).read_bytes()
    except OSError:
        return []
    return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith(b"\n")]


def epochs(host: Host, run: Path) -> list[dict[str, Any]]:
    return [line for line in lines(host, run) if line["event"] == "epoch"]


def wait_for_epoch(job: Job, run: Path, epoch: int) -> None:
    """Until rank 0 has written it down."""
    until = monotonic() + STARTED_S
    while len(epochs(job.hosts[0], run)) < epoch:
        assert job.running, job.output()
        assert monotonic() < until, job.output()
        sleep(0.02)


def train(graph: Path, out: Path, *options: object) -> list[object]:
    return ["-m", "strobe", "train", graph, "--out", out, "--patience", 0, "--threads", 1, "--quiet", *options]


def losses_of_one_rank(graph: Path, **settings: Any) -> list[float]:
    return [line["loss"] for line in strobe.train(graph, "tgcn", patience=0, threads=1, **settings).history]


def test_the_ledger_counts_what_the_kernel_counts_until_a_killed_rank_ends_the_rank_on_the_other_host(
    hosts_at: MakeHosts, disk: Path, tmp_path: Path
) -> None:
    hosts = hosts_at("100mbit")
    Social(nodes=600, snapshots=8, edges=4000).write().save(tmp_path / "graph")
    options = ["--plan", "hash", "--model-option", "layers=2", "--epochs", 100_000, "--deadline", DEADLINE_S]
    before = [host.sent_bytes() for host in hosts]
    job = start_ranks(hosts, train(tmp_path / "graph", disk / "run", *options), tmp_path)
    wait_for_epoch(job, disk / "run", 25)  # the one that no ledger tells of is little
    os.kill(hosts[1].rank(1), signal.SIGKILL)
    assert 0 not in job.wait(12 * DEADLINE_S), job.output()
    assert len(re.findall(STOPPED.format(0), job.logs[0].read_text())) == 1, job.output()
    assert [host.processes() for host in hosts] == [{}, {}]
    for rank, host in enumerate(hosts):
        known = [line["ranks"][rank]["sent"] for line in lines(hosts[0], disk / "run") if "ranks" in line]
        counted = sum(sum(sent.values()) for sent in known)
        assert counted > 2e6
        assert counted == pytest.approx(host.sent_bytes() - before[rank], rel=0.1)


def test_a_cut_link_ends_the_ranks_on_both_hosts(hosts_at: MakeHosts, disk: Path, tmp_path: Path) -> None:
    hosts = hosts_at("1gbit")
    small_graph().save(tmp_path / "graph")
    program = train(tmp_path / "graph", disk / "run", "--epochs", 100_000, "--deadline", DEADLINE_S)
    job = start_ranks(hosts, program, tmp_path)
    wait_for_epoch(job, disk / "run", 3)
    hosts[1].cut()
    assert 0 not in job.wait(12 * DEADLINE_S), job.output()
    for rank, log in enumerate(job.logs):
        assert len(re.findall(STOPPED.format(rank), log.read_text())) == 1, job.output()
    assert [host.processes() for host in hosts] == [{}, {}]


def test_two_hosts_with_disks_of_their_own_learn_what_one_rank_does_though_a_rank_is_killed_and_started_again(
    hosts_at: MakeHosts, disk: Path, tmp_path: Path
) -> None:
    hosts = hosts_at("1gbit")
    small_graph().save(tmp_path / "graph")
    for host in hosts:
        host.run("cp", "-r", tmp_path / "graph", disk / "graph")
    program = train(disk / "graph", disk / "run", "--epochs", 40)
    job = start_torchrun(hosts, program, tmp_path, ranks=(2, 1), options=["--max-restarts", 2])
    wait_for_epoch(job, disk / "run", 3)
    os.kill(hosts[1].rank(2), signal.SIGKILL)  # the first host's torchrun does not count this one
    assert job.wait(STARTED_S) == [0, 0], job.output()
    assert [line["epoch"] > 0 for line in lines(hosts[0], disk / "run") if line["event"] == "resume"] == [True]
    told = epochs(hosts[0], disk / "run")
    assert [line["epoch"] for line in told] == list(range(1, 41))
    expected = losses_of_one_rank(tmp_path / "graph", epochs=40)
    assert [line["loss"] for line in told[:4]] == pytest.approx(expected[:4], rel=1e-4)
    assert [line["loss"] for line in told] == pytest.approx(expected, rel=1e-3)
    assert [len(line["ranks"]) for line in told] == [3] * 40
    assert (hosts[0].outside_path(disk / "run") / CONFIG).exists()
    assert not hosts[1].outside_path(disk / "run").exists()
    assert "test " not in job.logs[1].read_text()  # the result is told once


_CRASH = """
import os, sys
from pathlib import Path
from tests.support.hosts import two_hosts

with two_hosts(Path(sys.argv[1])) as hosts:
    program = hosts[0].start(["sh", "-c", "sleep 1000 & sleep 1000"], Path(sys.argv[1]).with_name("log"))
    while len(found := hosts[0].processes()) < 3:
        pass
    print(*found, hosts[0].pid, hosts[1].pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_hosts_end_with_their_parent_process(hosts_at: MakeHosts, disk: Path) -> None:
    hosts_at("1gbit")  # or skips
    done = subprocess.run([sys.executable, "-c", _CRASH, disk.with_name("other")], stdout=subprocess.PIPE, text=True)
    numbers = [int(number) for number in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert len(numbers) == 5
    until = monotonic() + 10
    while any(Path(f"/proc/{number}").exists() for number in numbers):
        assert monotonic() < until
        sleep(0.02)


HEAR = "import socket; s = socket.create_server(('', 29400)); print('ready', flush=True); print(s.accept()[1][0])"
CALL = "import socket, sys; socket.create_connection((sys.argv[1], 29400), timeout=10)"


def test_hosts_at_a_switch_hear_each_other(disk: Path, tmp_path: Path) -> None:
    try:
        with switched_hosts(disk, 3, "1gbit") as (first, _, third):
            heard = first.start([sys.executable, "-c", HEAR], tmp_path / "log")
            until = monotonic() + STARTED_S
            while "ready" not in (tmp_path / "log").read_text():
                assert monotonic() < until
                sleep(0.02)
            third.run(sys.executable, "-c", CALL, "first")
            assert heard.wait(10) == 0
    except NoHostsError as error:
        pytest.skip(f"no hosts: {error}")
    assert (tmp_path / "log").read_text().split() == ["ready", third.address]
