"""Disks that fill up, writers that are killed, writers that meet."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import FormatError, OptionError, StrobeError
from strobe.graph import DiskSink, DynamicGraph, Edges, GraphBuilder, from_edges, open_graph
from strobe.graph import build as build_module
from strobe.graph.edge_sort import EdgeSorter
from tests.graph.disk.conftest import only_graph
from tests.support.graphs import full_graph
from tests.support.kills import forked, killed_before_step


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One mebibyte of its own file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here: that needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _heavy(num_edges: int) -> DynamicGraph:
    rng = np.random.default_rng(num_edges)
    return from_edges([rng.integers(0, 50, (2, num_edges))] * 2, weights=[rng.random(num_edges, np.float32)] * 2)


def test_full_disk_error_leaves_no_files_and_keeps_the_old_graph(small_disk: Path) -> None:
    place = small_disk / "graph"
    small = full_graph().save(place)
    # Sixteen bytes an edge: from what just fits, over what fails in the last small array, to far too much.
    outcomes = []
    for num_edges in [*range(57_000, 66_000, 300), 400_000]:
        try:
            _heavy(num_edges).save(small_disk / "other")
            shutil.rmtree(small_disk / "other")
            outcomes.append("it fits")
        except StrobeError as error:
            outcomes.append(str(error))
        assert only_graph(place)
    full = outcomes.index(outcomes[-1])
    assert outcomes == ["it fits"] * full + outcomes[-1:] * (len(outcomes) - full)
    assert full > 0
    assert "the disk is full" in outcomes[-1]
    with pytest.raises(StrobeError, match="the disk is full"):
        _heavy(400_000).save(place, overwrite=True)
    assert only_graph(place)
    assert open_graph(place) == small == full_graph()


def test_full_disk_while_sorting_is_reported(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "EdgeSorter", functools.partial(EdgeSorter, run_arcs=20_000))
    with pytest.raises(StrobeError, match="the disk is full"):
        _heavy(200_000).save(small_disk / "graph")
    assert not any(small_disk.iterdir())


def test_other_failures_of_a_disk_are_not_taken_for_a_full_one(place: Path) -> None:
    with pytest.raises(OSError, match="I/O") as caught, DiskSink(place):
        raise OSError(errno.EIO, "I/O error")
    assert caught.value.errno == errno.EIO
    assert not any(place.parent.iterdir())


def test_a_graph_moved_aside_comes_back_when_the_new_one_cannot_take_its_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = full_graph().save(place)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name.endswith(".writing"):
            raise OSError(errno.EIO, "I/O error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="I/O"):
        full_graph(weight=2.0).save(place, overwrite=True)
    assert open_graph(place) == old
    assert only_graph(place)


def _first_weight(graph: DynamicGraph) -> float:
    assert graph[0].weight is not None
    return float(graph[0].weight[0])


def test_a_writer_killed_at_any_moment_leaves_a_whole_graph_or_none(place: Path) -> None:
    graph = full_graph()
    killed = 0
    while killed_before_step(killed, lambda: graph.save(place)):
        killed += 1
        if place.exists():
            assert open_graph(place) == graph
        else:
            with pytest.raises(FormatError, match="there is no graph"):
                open_graph(place)
        if killed % 5 == 0:  # clear up after several at once, or after one
            assert full_graph(weight=7.0).save(place, overwrite=True) == full_graph(weight=7.0)
            assert only_graph(place)
        shutil.rmtree(place, ignore_errors=True)
    assert killed > 15
    assert open_graph(place) == graph
    assert only_graph(place)


def test_a_writer_killed_while_replacing_a_graph_loses_neither_the_old_nor_half_of_the_new(place: Path) -> None:
    old, new = full_graph(), full_graph(weight=7.0)
    old.save(place)
    killed, seen = 0, list[str]()
    while killed_before_step(killed, lambda: new.save(place, overwrite=True)):
        killed += 1
        try:
            seen.append({1.0: "the old", 7.0: "the new"}[_first_weight(open_graph(place))])
        except FormatError as error:
            seen.append(str(error))
        with pytest.raises(OptionError, match="already holds a graph"):
            DiskSink(place)  # clears up, brings back what was moved aside, and then refuses
        assert only_graph(place)
        if open_graph(place) != old:
            assert open_graph(place) == new
            old.save(place, overwrite=True)
    between = f"there is no graph at {place}; one that was being replaced is at {place.parent / '.graph.replaced'}"
    assert set(seen) == {"the old", between, "the new"}
    assert open_graph(place) == new
    assert only_graph(place)


@pytest.mark.parametrize("delay_s", [0.004, 0.016, 0.064])
def test_a_writer_killed_in_the_middle_of_its_bytes_leaves_a_whole_graph(delay_s: float, place: Path) -> None:
    old, new = full_graph(), _heavy(200_000)
    old.save(place)
    child = forked(lambda: new.save(place, overwrite=True))
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(OptionError, match="already holds a graph"):
        DiskSink(place)
    assert open_graph(place, verify=True) in (old, new)
    assert only_graph(place)


def test_clearing_up_touches_nothing_of_another_graph(tmp_path: Path) -> None:
    """The leftovers of "g.h" are not those of "g"."""
    full_graph().save(tmp_path / "g.h")
    (tmp_path / "g.h").rename(tmp_path / ".g.h.replaced")
    (tmp_path / ".g.h.writing").mkdir()
    full_graph(weight=2.0).save(tmp_path / "g")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".g.h.replaced", ".g.h.writing", "g"]
    with pytest.raises(OptionError, match="already holds a graph"):
        full_graph().save(tmp_path / "g.h")
    assert open_graph(tmp_path / "g.h") == full_graph()


def test_partially_removed_graph_is_not_restored(place: Path) -> None:
    full_graph().save(place)
    place.rename(aside := place.parent / ".graph.replaced")
    (aside / "graph.json").unlink()
    assert full_graph(weight=2.0).save(place) == full_graph(weight=2.0)
    assert only_graph(place)


def test_a_second_writer_is_refused_while_the_first_is_at_work(place: Path) -> None:
    with DiskSink(place) as sink:
        builder = GraphBuilder(sink, num_nodes=2)
        builder.add(Edges([0], [1]))
        with pytest.raises(OptionError, match="is being written by another process"):
            full_graph().save(place, overwrite=True)
        graph = builder.finish()
    assert open_graph(place) == graph
    assert only_graph(place)


def test_writers_that_meet_take_turns_and_readers_never_see_a_mixture(place: Path) -> None:
    one, two = full_graph(weight=1.0), full_graph(weight=2.0)
    one.save(place)

    def write(graph: DynamicGraph) -> None:
        for _ in range(15):
            while True:
                try:
                    graph.save(place, overwrite=True)
                    break
                except OptionError:  # the other one is at work
                    time.sleep(0.001)

    failures = set()
    children = {forked(functools.partial(write, graph)) for graph in (one, two)}
    while children:
        try:
            assert open_graph(place) in (one, two)
        except FormatError as error:
            failures.add(str(error)[: len("there is no graph at")])
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                assert status == 0
    assert failures <= {"there is no graph at"}  # between the two renames
    assert open_graph(place) in (one, two)
    assert only_graph(place)
