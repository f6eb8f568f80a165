from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.comm.launch.launcher import RankError, _open_store, run_ranks
from strobe.errors import OptionError
from tests.comm.conftest import Job
from tests.support.comm_jobs import NUM_RANKS, compute, cut_links, last_rank_does, rank_0_alone_does, sleep

pytestmark = pytest.mark.timeout(120)

POSITION = "in epoch 3, step 5, backward"


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Check that all processes in the list, open files and temporary files are gone at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with _open_store():  # the first store of a process leaves a pipe open
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    pids: list[int] = []
    yield pids
    assert pids, "no rank sent its pid"
    assert not [pid for pid in pids if _is_running(pid)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _error(action: Callable[[], object], pids: list[int], *, num_ranks: int = 2, deadline_s: float = 120.0) -> str:
    """Return the error of a job in which the last rank calls ``action`` while the others wait for it."""
    with pytest.raises(RankError) as caught:
        run_ranks(last_rank_does(action), num_ranks, deadline_s=deadline_s, on_event=lambda rank, pid: pids.append(pid))
    assert caught.value.rank == num_ranks - 1
    return str(caught.value)


def test_results_are_in_order_of_rank_and_closures_are_pickled(job: Job) -> None:
    assert job.part("rank") == [40, 41, 42]


def test_events_arrive_with_their_rank(job: Job) -> None:
    for rank in range(NUM_RANKS):
        assert [event for source, event in job.events if source == rank] == [("rank", rank), "end"]


def test_ranks_have_their_environment_and_threads(job: Job) -> None:
    for rank, result in enumerate(job.results):
        assert result["threads"] == 2
        assert result["environment"] == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(NUM_RANKS),
            "PYTHONPATH": os.environ.get("PYTHONPATH"),
        }


def test_a_rank_that_raises_is_named_with_its_traceback(nothing_left: list[int]) -> None:
    def fail() -> None:
        raise ValueError("no such row")

    first, *rest = _error(fail, nothing_left).splitlines()
    assert first == f"rank 1 failed {POSITION}: ValueError: no such row"
    assert any("in fail" in line for line in rest)


def test_a_rank_that_hangs_is_named_after_the_deadline(nothing_left: list[int]) -> None:
    text = _error(lambda: time.sleep(1000), nothing_left, deadline_s=3)
    first, second, *rest = text.splitlines()
    assert first == f"rank 1 did not answer for 3 s {POSITION}"
    assert second.startswith(f"rank 0 stopped {POSITION}: halo from rank 1 failed")
    assert any("test_launcher.py" in line for line in rest)  # where it hangs


def test_others_wait_for_rank_0_alone_beyond_the_deadline(nothing_left: list[int]) -> None:
    deadline_s = 1.0

    def slow() -> None:
        compute(deadline_s)
        time.sleep(2 * deadline_s)

    works = rank_0_alone_does(slow)
    results = run_ranks(works, 2, deadline_s=deadline_s, on_event=lambda rank, pid: nothing_left.append(pid))
    assert results == ["placed", "placed"]


def test_a_rank_0_that_hangs_alone_is_named_with_its_phase(nothing_left: list[int]) -> None:
    works = rank_0_alone_does(partial(time.sleep, 1000))
    with pytest.raises(RankError) as caught:
        run_ranks(works, 2, deadline_s=0.5, on_event=lambda rank, pid: nothing_left.append(pid))
    assert caught.value.rank == 0
    assert caught.value.position is not None
    assert caught.value.position.phase == "place"


def test_a_rank_0_that_is_killed_alone_is_named_with_its_phase(nothing_left: list[int]) -> None:
    works = rank_0_alone_does(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RankError, match="signal 9") as caught:
        run_ranks(works, 2, on_event=lambda rank, pid: nothing_left.append(pid))
    assert caught.value.rank == 0
    assert caught.value.position is not None
    assert caught.value.position.phase == "place"


def test_a_killed_rank_is_named(nothing_left: list[int]) -> None:
    text = _error(lambda: os.kill(os.getpid(), signal.SIGKILL), nothing_left)
    assert text.startswith(f"rank 1 was killed (signal 9) {POSITION}\n")


def test_a_stopped_rank_is_named_and_ended(nothing_left: list[int]) -> None:
    text = _error(lambda: os.kill(os.getpid(), signal.SIGSTOP), nothing_left, deadline_s=3)
    assert text.startswith("rank 1 is stopped (by a signal such as SIGSTOP, or a debugger) " + POSITION)


def test_a_cut_link_ends_the_job(nothing_left: list[int]) -> None:
    with pytest.raises(RankError, match=r"^rank [01] stopped in epoch 3, step 5, backward: halo .* failed") as caught:
        run_ranks(last_rank_does(cut_links), 2, on_event=lambda rank, pid: nothing_left.append(pid))
    assert "Traceback" in str(caught.value)


def test_an_option_error_keeps_its_text(nothing_left: list[int]) -> None:
    def refuse() -> None:
        raise OptionError("a window has at least 1 snapshot, not 0")

    assert _error(refuse, nothing_left, num_ranks=1) == "a window has at least 1 snapshot, not 0"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_ranks_silently(nothing_left: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    assert threading.current_thread() is threading.main_thread()

    def interrupt(rank: int, pid: int) -> None:
        nothing_left.append(pid)
        os.kill(pid, signal.SIGINT)  # a terminal signals all processes
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_ranks(sleep, 1, on_event=interrupt)
    assert capfd.readouterr().err == ""


def test_ranks_end_with_a_parent_that_is_killed() -> None:
    program = (
        "from strobe.comm.launch.launcher import run_ranks\n"
        "from tests.support.comm_jobs import sleep\n"
        "run_ranks(sleep, 1, on_event=lambda rank, pid: print(pid, flush=True))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _is_running(pid)
        parent.kill()
    until = time.monotonic() + 20
    while _is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_running(pid)


@pytest.mark.parametrize(
    ("num_ranks", "options", "message"),
    [
        (0, {}, "at least 1 rank, not 0"),
        (1, {"deadline_s": 0}, "more than 0 seconds"),
        (1, {"threads": 0}, "at least 1 thread"),
        (1, {"device": "tpu"}, "'tpu'"),
        pytest.param(
            2,
            {"device": "cuda"},
            "torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is available"),
        ),
    ],
)
def test_invalid_options_are_refused(num_ranks: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run_ranks(lambda comm, tell: None, num_ranks, **options)


def test_work_that_cannot_be_pickled_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(OptionError, match="cannot be sent to other processes"):
        run_ranks(lambda comm, tell: lock.acquire(), 1)
