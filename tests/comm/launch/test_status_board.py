from __future__ import annotations

import os

import pytest

from strobe.comm import Ledger
from strobe.comm.launch.status_board import RankPosition, RankStatus, StatusBoard, error_chain


def test_a_board_has_the_position_of_each_rank() -> None:
    with StatusBoard.create(3) as board:
        board.write(1, 4, 2, "forward")
        board.write(1, 4, 3, "backward")
        board.write(2, 9, 0, "sync")
        assert str(board.read(1)) == "epoch 4, step 3, backward"
        assert str(board.read(2)) == "epoch 9, step 0, sync"
        assert str(board.read(0)) == "epoch 0, step 0, starting"
        assert board.read(1).since <= board.read(2).since
        board.write(0, 0, 0, "place", alone=True)
        assert [board.read(rank).alone for rank in range(3)] == [True, False, False]


def test_an_entry_survives_the_process_that_wrote_it() -> None:
    with StatusBoard.create(2) as board:
        child = os.fork()
        if child == 0:
            try:
                StatusBoard(board.fd, 2).write(1, 7, 8, "evaluate")
            finally:
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        assert str(board.read(1)) == "epoch 7, step 8, evaluate"


def test_long_phase_names_are_truncated() -> None:
    with StatusBoard.create(1) as board:
        board.write(0, 1, 1, "über" * 20)
        assert board.read(0).phase.startswith("überüber")


def test_an_error_has_the_position_where_it_was_raised() -> None:
    with StatusBoard.create(1) as board:
        status, ledger = RankStatus(board, 0), Ledger()
        ledger.on_change = status.write
        ledger.at(1, 2)

        def fail() -> None:
            try:
                with ledger.phase("backward"), ledger.phase("sync"):
                    raise ValueError("boom")
            except ValueError as error:
                raise RuntimeError("because of it") from error

        with pytest.raises(RuntimeError) as caught, ledger.phase("forward"):
            fail()
        assert str(board.read(0)) == "epoch 1, step 2, train"
        assert str(status.position_at(caught.value)) == "epoch 1, step 2, sync"


def test_a_handled_error_does_not_affect_another() -> None:
    with StatusBoard.create(1) as board:
        status, ledger = RankStatus(board, 0), Ledger()
        ledger.on_change = status.write
        errors = []
        try:
            with ledger.phase("save"):
                raise OSError("disk full")
        except OSError as error:
            errors.append(error)  # alive, so that no other can have its id
        ledger.at(5, 6)
        assert status.position_at(ValueError("boom")) == RankPosition(5, 6, "train")


def test_a_cyclic_error_chain_has_each_error_once() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__, second.__cause__ = second, first, first
    assert list(error_chain(first)) == [first, second]
