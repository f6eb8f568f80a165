"""A line between processes: one number a word, over gloo, on CPUs also where ranks compute on GPUs."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from strobe.comm.base import Line, check_word

if TYPE_CHECKING:
    from strobe.comm.group import Group

KIND = "calls"
_BYTES = 8
_NOTHING = -1
"""What stands where the next word will be, until it comes."""


class GroupLine(Line):
    """The line of one of several ranks. Others always expect the next word: it arrives while they compute.

    Whether it has arrived is seen where it is put. Gloo's own answer, ``is_completed``, is yes only after waiting, and
    waiting for a moment is not possible: an operation that runs out of time ends all others of its group.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        with group.named(KIND, "of all ranks"):
            self._ranks: Any = dist.new_group(backend="gloo", timeout=group.deadline)
        self._said: list[tuple[Any, Tensor, int]] = []  # words stay until they have been heard
        self._word = torch.full((1,), _NOTHING)
        self._coming: Any = None
        if group.rank:
            self._expect()
        atexit.register(self.close)  # one that a failing process leaves open can abort it before it has said why

    def call(self, word: int) -> None:
        assert self._group.rank == 0, "only rank 0 calls"
        check_word(word)
        said = torch.tensor([word])
        for to in range(1, self._group.num_ranks):
            self._group.ledger.count_sent(KIND, _BYTES, 0)
            with self._group.named(KIND, f"calling rank {to}"):
                self._said.append((dist.isend(said, to, group=self._ranks), said, to))

    def heard(self) -> int | None:
        assert self._group.rank, "rank 0 does not hear itself"
        return self.next() if self._word.item() != _NOTHING else None

    def next(self) -> int:
        assert self._group.rank, "rank 0 does not hear itself"
        # Also for a word that is seen already: perhaps only half of it is there.
        self._group.finished(self._coming, KIND, "from rank 0", waiting=True)
        self._group.ledger.count_received(KIND, _BYTES)
        word = int(self._word)
        self._expect()
        return word

    def settle(self) -> None:
        for work, _, to in self._said:
            self._group.finished(work, KIND, f"to rank {to}", waiting=True)
        self._said.clear()

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._ranks is None or not dist.is_initialized():
            return
        # First what is under way, which nobody waits for any more, then what carries it.
        self._said.clear()
        self._coming = None
        dist.destroy_process_group(self._ranks)
        self._ranks = None

    def _expect(self) -> None:
        """A place for the next word, only now: with two of them the second could come first."""
        self._word.fill_(_NOTHING)
        with self._group.named(KIND, "from rank 0"):
            self._coming = dist.irecv(self._word, 0, group=self._ranks)
