from __future__ import annotations

import socket

from strobe.comm.launch.pipe import DONE, EVENT, READY, LauncherPipe, RankPipe


def test_messages_arrive_in_order() -> None:
    launcher_end, rank_end = socket.socketpair()
    launcher, rank = LauncherPipe(launcher_end), RankPipe(rank_end)
    rank.send(READY)
    rank.send(EVENT, b"one")
    rank.send(DONE, b"\0" * 1000)
    assert list(launcher.poll()) == [(READY, b""), (EVENT, b"one"), (DONE, b"\0" * 1000)]
    assert list(launcher.poll()) == []
    assert launcher.is_open
    launcher_end.close()
    rank_end.close()


def test_poll_does_not_wait_for_an_incomplete_message() -> None:
    launcher_end, rank_end = socket.socketpair()
    launcher = LauncherPipe(launcher_end)
    RankPipe(rank_end).send(EVENT, b"whole")
    rank_end.sendall(EVENT + (100).to_bytes(8, "little") + b"half")
    assert list(launcher.poll()) == [(EVENT, b"whole")]
    rank_end.close()
    assert list(launcher.poll()) == []
    assert not launcher.is_open
    launcher_end.close()


def test_wait_distinguishes_release_from_a_closed_launcher() -> None:
    launcher_end, rank_end = socket.socketpair()
    launcher, rank = LauncherPipe(launcher_end), RankPipe(rank_end)
    launcher.release()
    assert rank.wait()
    launcher_end.close()
    assert not rank.wait()
    rank_end.close()


def test_releasing_an_ended_rank_is_harmless() -> None:
    launcher_end, rank_end = socket.socketpair()
    rank_end.close()
    LauncherPipe(launcher_end).release()
    launcher_end.close()
