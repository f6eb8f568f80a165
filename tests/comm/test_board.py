from __future__ import annotations

import os

import pytest

from strobe.comm import Ledger
from strobe.comm.board import Board, Place, Whereabouts, chain


def test_a_board_tells_where_each_rank_is() -> None:
    with Board.new(3) as board:
        board.write(1, 4, 2, "forward")
        board.write(1, 4, 3, "backward")
        board.write(2, 9, 0, "sync")
        assert str(board.read(1)) == "epoch 4, step 3, backward"
        assert str(board.read(2)) == "epoch 9, step 0, sync"
        assert str(board.read(0)) == "epoch 0, step 0, starting"
        assert board.read(1).since <= board.read(2).since
        board.write(0, 0, 0, "place", alone=True)
        assert [board.read(rank).alone for rank in range(3)] == [True, False, False]


def test_another_process_sees_what_one_wrote_even_when_it_is_gone() -> None:
    with Board.new(2) as board:
        child = os.fork()
        if child == 0:
            try:
                Board(board.fd, 2).write(1, 7, 8, "evaluate")
            finally:
                os.kill(os.getpid(), 9)
        os.waitpid(child, 0)
        assert str(board.read(1)) == "epoch 7, step 8, evaluate"


def test_a_phase_of_any_name_fits() -> None:
    with Board.new(1) as board:
        board.write(0, 1, 1, "über" * 20)
        assert board.read(0).phase.startswith("überüber")


def test_an_error_is_placed_where_it_was_raised_not_where_it_was_caught() -> None:
    with Board.new(1) as board:
        where, ledger = Whereabouts(board, 0), Ledger()
        ledger.watch = where.write
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
        assert str(where.of(caught.value)) == "epoch 1, step 2, sync"


def test_an_error_that_was_dealt_with_is_not_taken_for_another() -> None:
    with Board.new(1) as board:
        where, ledger = Whereabouts(board, 0), Ledger()
        ledger.watch = where.write
        kept = []
        try:
            with ledger.phase("save"):
                raise OSError("disk full")
        except OSError as error:
            kept.append(error)  # alive, so that no other can have its id
        ledger.at(5, 6)
        assert where.of(ValueError("boom")) == Place(5, 6, "train")


def test_a_chain_of_errors_has_each_once_also_if_it_is_a_ring() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__, second.__cause__ = second, first, first
    assert list(chain(first)) == [first, second]
