"""Work for ranks. This module does not import pytest: every rank imports it."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.comm.rows import Route, all_reduce_rows, attach_tokens, exchange

NUM_RANKS = 3
ROWS = (3, 0, 4)
"""Rows per rank: one has none."""

SENDS = {(0, 1): [2, 0], (0, 2): [1], (2, 0): [3, 1, 3], (2, 1): [0]}
"""Row indices by sender and receiver: rank 1 only receives, and one row goes to the same rank twice."""

Tell = Callable[[Any], None]


def all_checks(comm: Comm, tell: Tell) -> dict[str, Any]:
    """Run all checks of three ranks in one job."""
    return {check.__name__: check(comm) for check in (messages, sums, values, rows, wire)}


def messages(comm: Comm) -> dict[str, Any]:
    """Send rows around the ring, in order and in a pipeline, and exchange rows with some empty messages."""
    comm.ledger.clear()
    after, before = (comm.rank + 1) % NUM_RANKS, (comm.rank - 1) % NUM_RANKS
    like = torch.empty(0, 2, dtype=torch.float64)
    with comm.ledger.phase("forward"):
        pending = [
            *comm.all_to_all_rows_async({after: _rows(comm.rank, 1)}, {before: 1}, like, kind="halo"),
            *comm.all_to_all_rows_async({after: _rows(comm.rank, 2)}, {before: 2}, like, kind="halo"),
        ]
        inorder = [work.wait() for work in pending]
        pipeline = comm.open_pipeline({(before, before): 3}, like, kind="halo")  # ranks take turns
        relayed = pipeline.receive(before, before) if comm.rank else None
        pipeline.send(comm.rank, {after: _rows(comm.rank, 3)})
        relayed = pipeline.receive(before, before) if relayed is None else relayed
        comm.wait_sends()
    with comm.ledger.phase("backward"):
        # Rank r sends s rows to rank s: nothing to rank 0.
        others = [rank for rank in range(NUM_RANKS) if rank != comm.rank]
        swapped = comm.all_to_all_rows(
            {to: _rows(comm.rank, to) for to in others}, dict.fromkeys(others, comm.rank), like, kind="relay"
        )
        comm.wait_sends()
    return {"relayed": relayed, "in order": inorder, "swapped": swapped, "ledger": comm.ledger.drain()}


def _rows(rank: int, number: int) -> Tensor:
    """Rows whose values identify the sender and their number."""
    return torch.arange(2 * number, dtype=torch.float64).view(number, 2) + 100 * rank + 10 * number


def sums(comm: Comm) -> dict[str, Any]:
    """Blocking and background all-reduces, awaited in another order."""
    comm.ledger.clear()
    mine = torch.tensor([0.1, 0.7, 1e-9], dtype=torch.float64) * (comm.rank + 1)
    later = [comm.all_reduce_async(torch.full((6,), float(comm.rank + number)), kind="gradients") for number in (1, 2)]
    total = comm.all_reduce(mine, kind="loss")
    second, first = later[1].wait(), later[0].wait()
    return {
        "mine": mine,
        "total": total,
        "first": first,
        "second": second,
        "agreed": comm.all_reduce_scalars([comm.rank, 0.5]),
        "largest": comm.all_reduce_max(
            [-comm.rank - 1, math.inf if comm.rank == 1 else 0.25, 7.0 * comm.rank], kind="most"
        ),
        "ledger": comm.ledger.drain(),
    }


def values(comm: Comm) -> dict[str, Any]:
    """Objects, larger on higher ranks."""
    value = {"rank": comm.rank, "text": "x" * 10 * comm.rank}
    return {
        "all_gather_object": comm.all_gather_object(value, kind="values"),
        "gather_object": comm.gather_object(value, kind="values"),
        "broadcast_object": comm.broadcast_object(value, kind="values"),
    }


def wire(comm: Comm) -> dict[str, dict[str, int]]:
    """Bytes sent and received by operation, and received bytes as the kernel counts them."""
    number = 100_000
    block = torch.ones(number, 1, dtype=torch.float64)
    others = [rank for rank in range(NUM_RANKS) if rank != comm.rank]
    operations: dict[str, Callable[[], Any]] = {
        "all_to_all_rows": lambda: comm.all_to_all_rows(
            dict.fromkeys(others, block), dict.fromkeys(others, number), block, kind="halo"
        ),
        "all_reduce": lambda: comm.all_reduce(block, kind="halo"),
        "all_gather_object": lambda: comm.all_gather_object(block.numpy(), kind="halo"),
        "gather_object": lambda: comm.gather_object(block.numpy(), kind="halo"),
        "broadcast_object": lambda: comm.broadcast_object(block.numpy(), kind="halo"),
    }
    counts = {}
    for name, operation in operations.items():
        comm.all_reduce_scalars([0.0])  # all ranks have received earlier messages
        comm.ledger.clear()
        before = _bytes_received()
        operation()
        comm.wait_sends()
        sent, received = sum(comm.ledger.sent.values()), sum(comm.ledger.received.values())
        comm.all_reduce_scalars([0.0])
        counts[name] = {"sent": sent, "received": received, "seen": _bytes_received() - before}
    return counts


def _bytes_received() -> int:
    """Received bytes of all connections, each byte once, from byte 128 on of Linux's tcp_info."""
    total = 0
    for each in _links():
        with each:
            total += int.from_bytes(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)[128:], "little")
    return total


def _links() -> list[socket.socket]:
    """This process's open connections."""
    links = []
    for name in Path("/proc/self/fd").iterdir():
        if not name.is_socket():
            continue
        link = socket.socket(fileno=os.dup(int(name.name)))
        try:
            link.getpeername()
        except OSError:  # a listening socket
            link.close()
            continue
        if link.family in (socket.AF_INET, socket.AF_INET6):
            links.append(link)
        else:
            link.close()
    return links


def cut_links() -> None:
    """Shut down all connections, as if a cable were pulled."""
    for each in _links():
        with each, suppress(OSError):  # the other rank may have noticed the first cut, and closed the rest
            each.shutdown(socket.SHUT_RDWR)


def rows(comm: Comm) -> dict[str, Any]:
    """Exchanges and an all-reduce whose results not every rank uses, and all gradients."""
    comm.ledger.clear()
    inputs, weight = all_inputs()
    x = inputs[comm.rank].requires_grad_()
    with comm.ledger.phase("forward"):
        h = torch.tanh(x @ weight)
        features, token = exchange(comm, route_of(comm.rank), x.detach(), kind="halo")
        arrived, after = exchange(comm, route_of(comm.rank), h, kind="halo")
        total, later = all_reduce_rows(comm, h.sum(0) + arrived.sum(0), kind="moments")
        again, last = exchange(comm, route_of(comm.rank), h * total, kind="halo")
    part = part_of_loss(comm.rank, h, features @ weight, arrived, total, again)
    with comm.ledger.phase("backward"):
        attach_tokens(part, [token, after, later, last]).backward()
    with torch.no_grad():
        plain, silent = exchange(comm, route_of(comm.rank), x, kind="halo")
    return {
        "loss": part.detach(),
        "x": x.grad,
        "weight": comm.all_reduce(
            weight.grad if weight.grad is not None else torch.zeros_like(weight), kind="gradients"
        ),
        "plain": plain,
        "plain requires grad": plain.requires_grad or silent.requires_grad,
        "ledger": comm.ledger.drain(),
    }


def all_inputs() -> tuple[list[Tensor], Tensor]:
    """The rows of all ranks, and a shared weight."""
    numbers = torch.Generator().manual_seed(5)
    inputs = [torch.randn(num_rows, 2, dtype=torch.float64, generator=numbers) for num_rows in ROWS]
    return inputs, torch.randn(2, 2, dtype=torch.float64, generator=numbers).requires_grad_()


def route_of(rank: int) -> Route:
    return Route(
        {to: torch.tensor(rows) for (source, to), rows in SENDS.items() if source == rank},
        {source: len(rows) for (source, to), rows in SENDS.items() if to == rank},
    )


def part_of_loss(rank: int, h: Tensor, features: Tensor, arrived: Tensor, total: Tensor, again: Tensor) -> Tensor:
    """Rank 0 uses all results; rank 1, which has no rows, all but the last; rank 2 no received rows."""
    if rank == 0:
        return (again**2).sum() + (arrived * 3).sum() + (total**2).sum() + features.sin().sum()
    if rank == 1:
        return (arrived**3).sum() + total.prod() + features.cos().sum()
    return h.exp().sum()


def sleep(comm: Comm, tell: Tell) -> None:
    """Send the pid, then sleep."""
    tell(os.getpid())
    time.sleep(1000)


def fail(error: Exception) -> None:
    raise error


def rank_0_hangs(comm: Comm, tell: Tell) -> None:
    """Rank 1 waits for a row of rank 0, and rank 2 for a message, in epoch 3, step 5, backward."""
    channel = comm.open_control_channel()
    comm.ledger.at(3, 5)
    with comm.ledger.phase("backward"):
        tell(os.getpid())
        if comm.rank == 0:
            time.sleep(1000)
        elif comm.rank == 1:
            comm.all_to_all_rows({}, {0: 1}, torch.empty(0, 1), kind="halo")
        else:
            channel.wait()


def last_rank_does(action: Callable[[], object]) -> Callable[[Comm, Tell], None]:
    """The last rank calls ``action`` in epoch 3, step 5, backward, while the others wait for it."""

    def work(comm: Comm, tell: Tell) -> None:
        last = comm.num_ranks - 1
        comm.ledger.at(3, 5)
        with comm.ledger.phase("backward"):
            tell(os.getpid())
            if comm.rank == last:
                action()
            comm.all_to_all_rows({}, {0 if comm.rank else last: 1}, torch.empty(0, 1), kind="halo")

    return work


def rank_0_alone_does(action: Callable[[], object]) -> Callable[[Comm, Tell], str]:
    """Rank 0 calls ``action`` alone in phase place, then broadcasts a result."""

    def work(comm: Comm, tell: Tell) -> str:
        tell(os.getpid())
        with comm.rank_0_alone("place"):
            if comm.rank == 0:
                action()
        result: str = comm.broadcast_object("placed" if comm.rank == 0 else None, kind="placement")
        return result

    return work


def compute(seconds: float) -> None:
    """Use the processor."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
