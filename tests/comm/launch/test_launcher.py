from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from strobe.comm import Comm
from strobe.comm.launch.launcher import RankError, _open_store, run_ranks
from strobe.errors import OptionError
from tests.support.comm_jobs import compute, cut_links, fail, last_rank_does, rank_0_alone_does, rank_0_hangs, sleep
from tests.support.forks import fork_ranks
from tests.support.kills import forked

pytestmark = pytest.mark.timeout(120)

POSITION = "in epoch 3, step 5, backward"


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Ranks are forked. All processes in the list, open files and temporary files are gone at the end."""
    fork_ranks(monkeypatch)
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


def _failed(work: Callable[[Any, Any], object], pids: list[int], rank: int, *, ranks: int = 2, **options: Any) -> str:
    """Return the error of a job that ends because of a rank."""
    with pytest.raises(RankError) as caught:
        run_ranks(work, ranks, threads=1, on_event=lambda rank, pid: pids.append(pid), **options)
    assert caught.value.rank == rank
    return str(caught.value)


def test_ranks_return_results_in_order_and_send_events_from_their_own_environment() -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PYTHONPATH")
    events, offset = [], 40

    def work(comm: Comm, tell: Callable[[Any], None]) -> tuple[int, int, list[str | None]]:
        tell(("rank", comm.rank))
        tell("end")
        return comm.rank + offset, torch.get_num_threads(), [os.environ.get(name) for name in names]

    results = run_ranks(work, 2, threads=2, on_event=lambda rank, event: events.append((rank, event)))
    for rank, result in enumerate(results):
        assert result == (40 + rank, 2, [str(rank), str(rank), "2", os.environ.get("PYTHONPATH")])
        assert [event for source, event in events if source == rank] == [("rank", rank), "end"]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (
            partial(fail, ValueError("no row")),
            rf"rank 1 failed {POSITION}: ValueError: no row\n(.*\n)+.*in fail",
        ),
        (partial(fail, OptionError("not 0")), "not 0$"),
        (partial(signal.raise_signal, signal.SIGKILL), rf"rank 1 was killed \(signal 9\) {POSITION}\n"),
    ],
    ids=["error", "error of options", "kill"],
)
def test_a_rank_that_ends_is_named_with_its_cause(
    action: Callable[[], object], error: str, nothing_left: list[int]
) -> None:
    assert re.match(error, _failed(last_rank_does(action), nothing_left, 1))


def test_a_stopped_rank_is_named_and_ended(nothing_left: list[int]) -> None:
    works = last_rank_does(partial(signal.raise_signal, signal.SIGSTOP))
    text = _failed(works, nothing_left, 1, deadline_s=1)
    assert text.startswith("rank 1 is stopped (by a signal such as SIGSTOP, or a debugger) " + POSITION)


def test_a_rank_that_hangs_is_named_after_the_deadline_of_rows_and_of_messages(nothing_left: list[int]) -> None:
    text = _failed(rank_0_hangs, nothing_left, 0, ranks=3, deadline_s=1)
    first, *others = text.splitlines()
    assert first == f"rank 0 did not answer for 1 s {POSITION}"
    assert others[0].startswith(f"rank 1 stopped {POSITION}: halo from rank 0 failed")
    assert others[1].startswith(f"rank 2 stopped {POSITION}: control from rank 0 failed")
    assert any("comm_jobs.py" in line for line in others[2:])  # where it hangs


def test_others_wait_for_rank_0_alone_beyond_the_deadline(nothing_left: list[int]) -> None:
    deadline_s = 0.5

    def slow() -> None:
        compute(deadline_s)
        time.sleep(2 * deadline_s)

    works = rank_0_alone_does(slow)
    results = run_ranks(works, 2, deadline_s=deadline_s, on_event=lambda rank, pid: nothing_left.append(pid))
    assert results == ["placed", "placed"]


@pytest.mark.parametrize(
    ("action", "error"),
    [(partial(time.sleep, 1000), "did nothing"), (partial(signal.raise_signal, signal.SIGKILL), "signal 9")],
    ids=["hang", "kill"],
)
def test_a_rank_0_that_fails_alone_is_named_with_its_phase(
    action: Callable[[], object], error: str, nothing_left: list[int]
) -> None:
    text = _failed(rank_0_alone_does(action), nothing_left, 0, deadline_s=0.3)
    assert error in text.splitlines()[0]
    assert "in epoch 0, step 0, place" in text.splitlines()[0]


def test_a_cut_link_ends_the_job(nothing_left: list[int]) -> None:
    with pytest.raises(RankError, match=r"^rank [01] stopped in epoch 3, step 5, backward: halo .* failed") as caught:
        run_ranks(last_rank_does(cut_links), 2, on_event=lambda rank, pid: nothing_left.append(pid))
    assert "Traceback" in str(caught.value)


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
    reader, writer = os.pipe()

    def tell(rank: int, pid: int) -> None:
        os.write(writer, b"%d" % pid)

    parent = forked(lambda: run_ranks(sleep, 1, on_event=tell))
    pid = int(os.read(reader, 20))
    assert _is_running(pid)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    os.close(reader)
    os.close(writer)
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
