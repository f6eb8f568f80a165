from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from strobe.comm.base import CommError
from strobe.comm.round import fresh

RANKS = 3


def one_round(store: Store, late: int, word: str) -> list[str]:
    """All ranks meet, one of them late; what each finds where rank 0 has written."""

    def rank(number: int) -> str:
        sleep(0.2 if number == late else 0)
        mine = fresh(store, number, RANKS, 10)
        if number == 0:
            mine.set("word", word)
        return str(mine.get("word").decode())

    with ThreadPoolExecutor(RANKS) as ranks:
        return list(ranks.map(rank, range(RANKS)))


@pytest.mark.parametrize("late", range(RANKS))
def test_ranks_never_find_what_the_round_before_has_left(late: int) -> None:
    store = HashStore()
    assert one_round(store, 1, "old") == ["old"] * RANKS
    assert one_round(store, late, "new") == ["new"] * RANKS


def test_a_rank_that_nobody_answers_says_so() -> None:
    with pytest.raises(CommError, match="not all 2 ranks came"):
        fresh(HashStore(), 0, 2, 0.1)
