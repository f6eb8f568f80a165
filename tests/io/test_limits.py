"""Each in a process of its own: whatever it loads under a limit stays half loaded."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import strobe
from strobe.errors import StrobeError
from strobe.graph.ingest import Every, ingest
from strobe.io.limits import check_address_space
from tests.support.kills import forked
from tests.support.runs import small_graph


def refused_with(mebibytes: int, work: Callable[[], object]) -> bool:
    """Whether work is refused in a process that may map so much more memory."""

    def limited() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20), resource.RLIM_INFINITY))
        try:
            work()
        except StrobeError as error:
            os._exit(3 if "ulimit -v" in str(error) else 4)
        os._exit(0)

    _, status = os.waitpid(forked(limited), 0)
    return os.waitstatus_to_exitcode(status) == 3


def test_without_a_limit_nothing_is_refused() -> None:
    check_address_space(1 << 50, "a test")


def test_ingest_needs_address_space(tmp_path: Path) -> None:
    table = tmp_path / "events.csv"
    table.write_text("a,b,1\n")
    assert refused_with(512, lambda: ingest(table, src=0, dst=1, time=2, clock=Every(1)))


def test_training_needs_address_space() -> None:
    graph, train = small_graph(), strobe.train
    assert refused_with(64, lambda: train(graph, "tgcn", epochs=1))
