"""A fresh place in a store for the ranks of this round.

Torchrun hands ranks that it restarts the store of those before, with their addresses still in it: whoever comes first
would call a process that is gone.
"""

from __future__ import annotations

from time import monotonic, sleep
from uuid import uuid4

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from strobe.comm.base import CommError

_ASK_EVERY_S = 0.02


def fresh(store: Store, rank: int, num_ranks: int, deadline_s: float) -> Store:
    """The part of a store that only ranks that live now know of; all must ask.

    Rank 0 names the round. The others answer with that name and their own; whoever answers to a new name is alive. At
    last rank 0 tells who has answered: one that finds an old round, which knows nothing of it, goes on asking.
    """
    store = PrefixStore("strobe", store)
    me, until = uuid4().hex, monotonic() + deadline_s
    while monotonic() < until:
        name = _called(store, me, num_ranks) if rank == 0 else _answered(store, me, rank)
        if name is not None:
            return PrefixStore(name, store)
        sleep(_ASK_EVERY_S)
    raise CommError(f"rank {rank} stopped while joining: not all {num_ranks} ranks came within {deadline_s:g} s")


def _called(store: Store, me: str, num_ranks: int) -> str | None:
    store.set("round", me)
    keys = [f"answer/{rank}" for rank in range(1, num_ranks)]
    answers = [store.get(key).decode().split() for key in keys] if store.check(keys) else []
    if len(answers) < num_ranks - 1 or any(name != me for name, _ in answers):
        return None
    store.set(f"present/{me}", " ".join(who for _, who in answers))
    return me


def _answered(store: Store, me: str, rank: int) -> str | None:
    if not store.check(["round"]):
        return None
    name = store.get("round").decode()
    store.set(f"answer/{rank}", f"{name} {me}")
    present = f"present/{name}"
    return name if store.check([present]) and me in store.get(present).decode().split() else None
