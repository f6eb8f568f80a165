"""Following that is killed at any moment goes on to the same graph."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from strobe.errors import FormatError, OptionError
from strobe.graph import GrowingGraph, open_graph
from strobe.graph.follow import RowCounts, follow
from strobe.graph.ingest import Every
from strobe.graph.ingest.options import IngestOptions
from tests.support.follow_sources import Event, Folder, Text, named, offline, options
from tests.support.kills import forked, killed_before_step

EVENTS: list[Event] = [(n % 5, n * n % 7, 3 * n, 1.0) for n in range(20)]


def test_kill_before_any_step_loses_and_repeats_no_event(tmp_path: Path) -> None:
    place, chosen = Folder(tmp_path / "in"), options(Every(10), life=2)
    expected = named(offline(EVENTS, chosen))

    def work(ended: bool) -> None:
        with follow(place.path, chosen, into=tmp_path / "graph") as following:
            following.poll(ended=ended)

    steps, kills = 0, 0
    for start in range(0, len(EVENTS), 5):
        place.add(EVENTS[start : start + 5])
        while killed_before_step(steps, lambda: work(False)):
            steps, kills = steps + 11, kills + 1
            if (tmp_path / "graph").exists():
                shown = named(open_graph(tmp_path / "graph")) if len(open_graph(tmp_path / "graph")) else []
                assert [shot[1:] for shot in shown] == [shot[1:] for shot in expected[: len(shown)]]
        steps %= 11
    work(True)
    assert kills > 5
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        assert following.counts == RowCounts(rows=len(EVENTS))
        assert named(following.open()) == expected


def test_repeated_kills_while_lines_are_appended_give_the_same_graph(tmp_path: Path) -> None:
    place, chosen = Text(tmp_path / "events.csv"), options(Every(4))
    draw = random.Random(0)

    def work() -> None:
        with follow(place.path, chosen, into=tmp_path / "graph") as following:
            while True:
                following.poll()

    for event in EVENTS:
        place.add([event])
        if event[2] % 2:
            child = forked(work)
            time.sleep(draw.uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status)
    place.end()
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        following.poll(ended=True)
        assert following.counts == RowCounts(rows=len(EVENTS))
        assert named(following.open()) == named(offline(EVENTS, chosen))


def test_a_graph_that_has_lost_its_journal_is_refused(tmp_path: Path) -> None:
    place, chosen = Folder(tmp_path / "in"), options(Every(10))
    place.add(EVENTS)
    with follow(place.path, chosen, into=tmp_path / "graph") as following:
        following.poll()
    journal = tmp_path / "graph" / ".follow" / "journal.json"
    text = journal.read_text()
    for damaged, message in ((text[:-9], "is damaged"), (None, "has lost its journal")):
        journal.unlink() if damaged is None else journal.write_text(damaged)
        with pytest.raises(FormatError, match=message):
            follow(place.path, chosen, into=tmp_path / "graph")
    journal.write_text(text)
    follow(place.path, chosen, into=tmp_path / "graph").close()  # and what was refused holds no lock
    GrowingGraph.create(tmp_path / "other").close()
    with pytest.raises(OptionError, match="was not made by following a source"):
        follow(place.path, IngestOptions(src=0, dst=1, time=2, clock=Every(1)), into=tmp_path / "other")
