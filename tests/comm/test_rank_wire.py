from __future__ import annotations

import socket

from strobe.comm.rank_wire import DONE, EVENT, READY, ParentEnd, RankEnd


def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    parent, rank = ParentEnd(ours), RankEnd(theirs)
    rank.say(READY)
    rank.say(EVENT, b"one")
    rank.say(DONE, b"\0" * 1000)
    assert list(parent.heard()) == [(READY, b""), (EVENT, b"one"), (DONE, b"\0" * 1000)]
    assert list(parent.heard()) == []
    assert parent.open
    ours.close()
    theirs.close()


def test_a_message_that_breaks_off_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    parent = ParentEnd(ours)
    RankEnd(theirs).say(EVENT, b"whole")
    theirs.sendall(EVENT + (100).to_bytes(8, "little") + b"half")
    assert list(parent.heard()) == [(EVENT, b"whole")]
    theirs.close()
    assert list(parent.heard()) == []
    assert not parent.open
    ours.close()


def test_a_rank_knows_a_nudge_from_the_end_of_the_other_side() -> None:
    ours, theirs = socket.socketpair()
    parent, rank = ParentEnd(ours), RankEnd(theirs)
    parent.nudge()
    assert rank.wait()
    ours.close()
    assert not rank.wait()
    theirs.close()


def test_one_that_is_gone_can_be_nudged_in_vain() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    ParentEnd(ours).nudge()
    ours.close()
