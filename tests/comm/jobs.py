"""Work for ranks. No pytest in here: ranks import this module, and each takes its time."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route, exchange, summed, tied

NUM_RANKS = 3
ROWS = (3, 0, 4)
"""How many rows each rank has: one has none."""

SENDS = {(0, 1): [2, 0], (0, 2): [1], (2, 0): [3, 1, 3], (2, 1): [0]}
"""Which rows go from whom to whom: rank 1 only listens, and one row goes to the same rank twice."""

Tell = Callable[[Any], None]


def all_checks(comm: Comm, tell: Tell, offset: int) -> dict[str, Any]:
    """Everything that tests ask of three ranks, in one job: processes take seconds to start."""
    tell(("rank", comm.rank))
    told = {
        "rank": comm.rank + offset,
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")},
        "messages": messages(comm),
        "sums": sums(comm),
        "values": values(comm),
        "rows": rows(comm),
        "wire": wire(comm),
    }
    tell("end")
    return told


def messages(comm: Comm) -> dict[str, Any]:
    """Rows around the ring, in order and by tag, and a swap in which some have nothing to say."""
    comm.ledger.clear()
    after, before = (comm.rank + 1) % NUM_RANKS, (comm.rank - 1) % NUM_RANKS
    like = torch.empty(0, 2, dtype=torch.float64)
    with comm.ledger.phase("forward"):
        for number in (1, 2):
            comm.send(after, _rows(comm.rank, number), kind="halo")
        comm.send(after, _rows(comm.rank, 3), kind="halo", tag=7)
        tagged = comm.receive(before, like, 3, kind="halo", tag=7).wait()
        inorder = [comm.receive(before, like, number, kind="halo").wait() for number in (1, 2)]
        comm.settle()
    with comm.ledger.phase("backward"):
        # Rank r sends s rows to rank s: nothing to rank 0.
        others = [rank for rank in range(NUM_RANKS) if rank != comm.rank]
        swapped = comm.swap(
            {to: _rows(comm.rank, to) for to in others}, dict.fromkeys(others, comm.rank), like, kind="relay"
        )
        comm.settle()
    return {"tagged": tagged, "in order": inorder, "swapped": swapped, "ledger": comm.ledger.cut()}


def _rows(rank: int, number: int) -> Tensor:
    """So many rows that tell who sent them, and which."""
    return torch.arange(2 * number, dtype=torch.float64).view(number, 2) + 100 * rank + 10 * number


def sums(comm: Comm) -> dict[str, Any]:
    """Sums now and later; those begun first may be waited for last."""
    comm.ledger.clear()
    mine = torch.tensor([0.1, 0.7, 1e-9], dtype=torch.float64) * (comm.rank + 1)
    later = [comm.sum_later(torch.full((6,), float(comm.rank + number)), kind="gradients") for number in (1, 2)]
    total = comm.sum(mine, kind="loss")
    second, first = later[1].wait(), later[0].wait()
    return {
        "mine": mine,
        "total": total,
        "first": first,
        "second": second,
        "agreed": comm.agree([comm.rank, 0.5]),
        "largest": comm.largest([-comm.rank - 1, math.inf if comm.rank == 1 else 0.25, 7.0 * comm.rank], kind="most"),
        "ledger": comm.ledger.cut(),
    }


def values(comm: Comm) -> dict[str, Any]:
    """Plain values, longer on higher ranks."""
    value = {"rank": comm.rank, "text": "x" * 10 * comm.rank}
    return {
        "gathered": comm.gather(value, kind="values"),
        "collected": comm.collect(value, kind="values"),
        "shared": comm.share(value, kind="values"),
    }


def wire(comm: Comm) -> dict[str, dict[str, int]]:
    """Bytes this rank sent and received, by operation, and those it received as the system counts them."""
    number = 100_000
    block = torch.ones(number, 1, dtype=torch.float64)
    others = [rank for rank in range(NUM_RANKS) if rank != comm.rank]
    does: dict[str, Callable[[], Any]] = {
        "swap": lambda: comm.swap(dict.fromkeys(others, block), dict.fromkeys(others, number), block, kind="halo"),
        "sum": lambda: comm.sum(block, kind="halo"),
        "gather": lambda: comm.gather(block.numpy(), kind="halo"),
        "collect": lambda: comm.collect(block.numpy(), kind="halo"),
        "share": lambda: comm.share(block.numpy(), kind="halo"),
    }
    found = {}
    for name, do in does.items():
        comm.agree([0.0])  # everyone has all there was
        comm.ledger.clear()
        before = _bytes_received()
        do()
        comm.settle()
        sent, received = sum(comm.ledger.sent.values()), sum(comm.ledger.received.values())
        comm.agree([0.0])
        found[name] = {"sent": sent, "received": received, "seen": _bytes_received() - before}
    return found


def _bytes_received() -> int:
    """Since the links are there, each byte once, as Linux counts them (from byte 128 of its tcp_info on)."""
    total = 0
    for each in _links():
        with each:
            total += int.from_bytes(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)[128:], "little")
    return total


def _links() -> list[socket.socket]:
    """This process's open links to others."""
    found = []
    for name in Path("/proc/self/fd").iterdir():
        try:
            link = socket.socket(fileno=os.dup(int(name.name)))
        except OSError:  # no socket, or not there any more
            continue
        try:
            link.getpeername()
        except OSError:  # one that listens
            link.close()
            continue
        if link.family in (socket.AF_INET, socket.AF_INET6):
            found.append(link)
        else:
            link.close()
    return found


def cut_links() -> None:
    """As if somebody pulled the cable."""
    for each in _links():
        with each:
            each.shutdown(socket.SHUT_RDWR)


def rows(comm: Comm) -> dict[str, Any]:
    """Two exchanges and a sum, one after the other, whose results not every rank uses; and all gradients."""
    comm.ledger.clear()
    inputs, weight = all_inputs()
    x = inputs[comm.rank].requires_grad_()
    with comm.ledger.phase("forward"):
        h = torch.tanh(x @ weight)
        features, token = exchange(comm, route_of(comm.rank), x.detach(), kind="halo")
        arrived, after = exchange(comm, route_of(comm.rank), h, kind="halo")
        total, later = summed(comm, h.sum(0) + arrived.sum(0), kind="moments")
        again, last = exchange(comm, route_of(comm.rank), h * total, kind="halo")
    part = part_of_loss(comm.rank, h, features @ weight, arrived, total, again)
    with comm.ledger.phase("backward"):
        tied(part, [token, after, later, last]).backward()
    with torch.no_grad():
        plain, silent = exchange(comm, route_of(comm.rank), x, kind="halo")
    return {
        "loss": part.detach(),
        "x": x.grad,
        "weight": comm.sum(weight.grad if weight.grad is not None else torch.zeros_like(weight), kind="gradients"),
        "plain": plain,
        "plain wants a gradient": plain.requires_grad or silent.requires_grad,
        "ledger": comm.ledger.cut(),
    }


def all_inputs() -> tuple[list[Tensor], Tensor]:
    """The rows of all ranks, and a weight that all have."""
    numbers = torch.Generator().manual_seed(5)
    inputs = [torch.randn(num_rows, 2, dtype=torch.float64, generator=numbers) for num_rows in ROWS]
    return inputs, torch.randn(2, 2, dtype=torch.float64, generator=numbers).requires_grad_()


def route_of(rank: int) -> Route:
    return Route(
        {to: torch.tensor(rows) for (source, to), rows in SENDS.items() if source == rank},
        {source: len(rows) for (source, to), rows in SENDS.items() if to == rank},
    )


def part_of_loss(rank: int, h: Tensor, features: Tensor, arrived: Tensor, total: Tensor, again: Tensor) -> Tensor:
    """Rank 0 uses all, rank 1, which has no rows, all but what came last, rank 2 nothing that came from others."""
    if rank == 0:
        return (again**2).sum() + (arrived * 3).sum() + (total**2).sum() + features.sin().sum()
    if rank == 1:
        return (arrived**3).sum() + total.prod() + features.cos().sum()
    return h.exp().sum()


def sleep(comm: Comm, tell: Tell) -> None:
    """Tells which process it is, and does nothing for a long time."""
    tell(os.getpid())
    time.sleep(1000)


def last_rank_does(what: Callable[[], object]) -> Callable[[Comm, Tell], None]:
    """The last rank does something in epoch 3, step 5, backward, while the others wait for it."""

    def work(comm: Comm, tell: Tell) -> None:
        last = comm.num_ranks - 1
        comm.ledger.at(3, 5)
        with comm.ledger.phase("backward"):
            tell(os.getpid())
            if comm.rank == last:
                what()
            comm.receive(0 if comm.rank else last, torch.empty(0, 1), 1, kind="halo").wait()

    return work


def rank_0_alone_does(what: Callable[[], object]) -> Callable[[Comm, Tell], str]:
    """Rank 0 does something alone, in phase place, before it tells all others."""

    def work(comm: Comm, tell: Tell) -> str:
        tell(os.getpid())
        with comm.rank_0_alone("place"):
            if comm.rank == 0:
                what()
        told: str = comm.share("placed" if comm.rank == 0 else None, kind="placement")
        return told

    return work


def compute(seconds: float) -> None:
    """Uses the processor for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
