from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from strobe.comm import Comm, SingleRankComm
from strobe.comm.rows import Route, attach_tokens
from strobe.exchange.stale import StaleExchange
from strobe.exchange.transfer import FreshExchange, receive_rows
from tests.support.comm_jobs import NUM_RANKS, ROWS, SENDS, route_of
from tests.support.ranks import as_threads

WIDTH, PASSES = 2, 6
THRESHOLDS = [0.0, 0.3, 0.7, 1.0, 2.0]


def rows_of(seed: int) -> list[list[Tensor]]:
    """Rows of every rank in every pass; each row moves by steps of its own size."""
    generator = torch.Generator().manual_seed(seed)
    outputs = [[torch.randn(n, WIDTH, dtype=torch.float64, generator=generator) for n in ROWS]]
    for _ in range(PASSES - 1):
        sizes = [torch.rand(n, 1, dtype=torch.float64, generator=generator) ** 3 for n in ROWS]
        steps = [size * torch.randn(len(size), WIDTH, dtype=torch.float64, generator=generator) for size in sizes]
        outputs.append([x + step for x, step in zip(outputs[-1], steps, strict=True)])
    return outputs


@dataclass(frozen=True)
class Reference:
    """One pass: which rows are sent for each (source, destination), the rows each rank reads, and theta."""

    sent: dict[tuple[int, int], list[bool]]
    read: list[Tensor]
    theta: float


def reference(passes: list[list[Tensor]], threshold: float) -> list[Reference]:
    results: dict[tuple[int, int, int], Tensor] = {}
    outputs = []
    for x in passes:
        now = {(s, to, k): x[s][row] for (s, to), rows in SENDS.items() for k, row in enumerate(rows)}
        far = {key: float((row - results[key]).norm()) if results else math.inf for key, row in now.items()}
        theta = threshold * max(far.values()) if results else 0.0
        goes = {key: far[key] >= theta for key in now}
        results |= {key: now[key] for key in now if goes[key]}
        read = [
            torch.stack([results[key] for key in sorted(now) if key[1] == rank])
            if any(key[1] == rank for key in now)
            else x[rank].new_empty(0, WIDTH)
            for rank in range(NUM_RANKS)
        ]
        sent = {pair: [goes[*pair, k] for k in range(len(rows))] for pair, rows in SENDS.items()}
        outputs.append(Reference(sent, read, theta))
    return outputs


def stale_exchange(comm: Comm, threshold: float) -> StaleExchange:
    return StaleExchange(comm, FreshExchange(comm), lambda first, last: threshold)


def one_pass(comm: Comm, exchange: StaleExchange, x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that a rank reads, and the gradient of its rows. The n-th row read has the gradient n * (rank + 2)."""
    x = x.clone().requires_grad_()
    exchange.begin_pass()
    transfer = exchange.start_transfer(route_of(comm.rank), x, kind="halo")
    if transfer is None:
        return x.new_empty(0, WIDTH), torch.zeros_like(x)
    with comm.ledger.phase("forward"):
        rows_read, token = receive_rows(transfer, x)
    aim = (comm.rank + 2) * torch.arange(1.0, len(rows_read) + 1, dtype=x.dtype)[:, None]
    with comm.ledger.phase("backward"):
        attach_tokens((rows_read * aim).sum(), [token]).backward()
    assert x.grad is not None
    return rows_read.detach(), x.grad


@pytest.mark.parametrize(("seed", "threshold"), [*enumerate(THRESHOLDS), (7, 0.3)])
def test_rows_are_sent_when_they_have_moved_far_from_their_last_sent_value(threshold: float, seed: int) -> None:
    passes = rows_of(seed)
    wanted = reference(passes, threshold)

    def work(comm: Comm) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
        exchange, outputs = stale_exchange(comm, threshold), []
        for x in passes:
            comm.ledger.clear()
            rows_read, gradient = one_pass(comm, exchange, x[comm.rank])
            outputs.append((rows_read, gradient, comm.ledger.drain()))
        return outputs

    results = as_threads(work, NUM_RANKS)
    for number, plain in enumerate(wanted):
        for rank in range(NUM_RANKS):
            rows_read, gradient, ledger = results[rank][number]
            torch.testing.assert_close(rows_read, plain.read[rank], rtol=0, atol=0)
            torch.testing.assert_close(gradient, gradients(plain)[rank], rtol=0, atol=1e-12)
            check_ledger(rank, plain, ledger, first=number == 0)


def gradients(plain: Reference) -> list[Tensor]:
    """Gradients of all ranks' rows, from sent rows only."""
    outputs = [torch.zeros(rows, WIDTH, dtype=torch.float64) for rows in ROWS]
    for to in range(NUM_RANKS):
        place = 0
        for source in range(NUM_RANKS):
            for row, was_row_sent in zip(SENDS.get((source, to), []), plain.sent.get((source, to), []), strict=True):
                place += 1
                outputs[source][row] += was_row_sent * (to + 2) * place
    return outputs


def check_ledger(rank: int, plain: Reference, ledger: dict[str, Any], *, first: bool) -> None:
    """Sent and suppressed rows add up to those of a fresh exchange; masks are one bit per row."""
    row = WIDTH * 8
    there = [was_row_sent for (source, _), each in plain.sent.items() if source == rank for was_row_sent in each]
    back = [was_row_sent for (_, to), each in plain.sent.items() if to == rank for was_row_sent in each]
    for phase, was_sent in (("forward", there), ("backward", back)):
        key = f"{phase}/halo"
        assert ledger["rows_sent"].get(key, 0) == sum(was_sent)
        assert ledger["sent"].get(key, 0) == sum(was_sent) * row
        assert ledger["suppressed_rows"].get(key, 0) == len(was_sent) - sum(was_sent)
        assert ledger["suppressed_bytes"].get(key, 0) == (len(was_sent) - sum(was_sent)) * row
    masks = {} if first else {to: -(-len(rows) // 8) for (source, to), rows in SENDS.items() if source == rank}
    assert sum(sent for key, sent in ledger["sent"].items() if key.endswith("/masks")) == sum(masks.values())


def read_rows(comm: Comm, exchange: StaleExchange, passes: list[list[Tensor]]) -> list[Tensor]:
    return [one_pass(comm, exchange, x[comm.rank])[0] for x in passes]


def test_largest_distance_is_taken_over_all_ranks() -> None:
    def work(comm: Comm) -> int:
        exchange = stale_exchange(comm, 0.5)
        for number in range(2):
            before = comm.ledger.rows_sent["forward", "halo"]
            step = {0: 1.0, 1: 0.0, 2: 0.4}[comm.rank]  # alone, each would send everything
            one_pass(comm, exchange, torch.full((ROWS[comm.rank], WIDTH), number * step, dtype=torch.float64))
        return comm.ledger.rows_sent["forward", "halo"] - before

    assert as_threads(work, NUM_RANKS) == [3, 0, 0]


def test_rank_without_rows_takes_part_in_the_all_reduce() -> None:

    def work(comm: Comm) -> list[int]:
        route = {0: Route({1: torch.tensor([0])}, {}), 1: Route({}, {0: 1})}.get(comm.rank, Route({}, {}))
        exchange, outputs = stale_exchange(comm, 0.5), []
        for number in range(3):
            x = torch.full((1, 1), float(number), requires_grad=True)
            exchange.begin_pass()
            transfer = exchange.start_transfer(route, x, kind="halo")
            assert (transfer is None) == (comm.rank == 2)
            outputs.append(0 if transfer is None else len(receive_rows(transfer, x)[0]))
        return outputs

    assert as_threads(work, 3) == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_each_exchange_of_a_pass_has_its_own_last_rows() -> None:
    passes = rows_of(1)

    def work(comm: Comm) -> list[list[Tensor]]:
        exchange, outputs = stale_exchange(comm, 0.5), []
        for x in passes:
            exchange.begin_pass()
            both = []
            for rows in (x[comm.rank], 100 - 5 * x[comm.rank].repeat(1, 2)):  # another width, another scale
                rows = rows.clone().requires_grad_()
                transfer = exchange.start_transfer(route_of(comm.rank), rows, kind="halo")
                assert transfer is not None
                both.append(receive_rows(transfer, rows)[0].detach())
            outputs.append(both)
        return outputs

    results = as_threads(work, NUM_RANKS)
    for number, plain in enumerate(reference(passes, 0.5)):
        for rank in range(NUM_RANKS):
            first, second = results[rank][number]
            assert torch.equal(first, plain.read[rank])
            torch.testing.assert_close(second, 100 - 5 * plain.read[rank].repeat(1, 2))


def test_evaluation_is_fresh_and_leaves_last_rows_unchanged() -> None:
    passes = rows_of(2)

    def work(comm: Comm) -> list[Tensor]:
        exchange = stale_exchange(comm, 2.0)
        one_pass(comm, exchange, passes[0][comm.rank])
        before = [{name: rows.clone() for name, rows in each.items()} for each in exchange.state_dict()]
        fresh = []
        with torch.no_grad():
            for x in passes[1:]:
                exchange.begin_pass()
                transfer = exchange.start_transfer(route_of(comm.rank), x[comm.rank], kind="halo")
                assert transfer is not None
                fresh.append(receive_rows(transfer, x[comm.rank])[0])
        for each, old in zip(exchange.state_dict(), before, strict=True):
            assert all(torch.equal(each[name], old[name]) for name in old)
        stale, _ = one_pass(comm, exchange, passes[-1][comm.rank])
        return [*fresh, stale]

    results = as_threads(work, NUM_RANKS)
    exact = reference(passes, 0.0)
    for rank in range(NUM_RANKS):
        for plain, fresh in zip(exact[1:], results[rank], strict=False):
            assert torch.equal(fresh, plain.read[rank])
        assert torch.equal(results[rank][-1], exact[0].read[rank])


def test_recomputation_reads_the_same_rows_and_sends_nothing() -> None:
    passes = rows_of(3)

    def work(comm: Comm, recompute: bool) -> list[tuple[Tensor, Tensor, list[int]]]:
        exchange, outputs = stale_exchange(comm, 0.5), []
        weight = torch.full((WIDTH, WIDTH), 0.7, dtype=torch.float64, requires_grad=True)
        for x in passes:
            comm.ledger.clear()
            rows = x[comm.rank].clone().requires_grad_()

            def run(rows: Tensor) -> Tensor:
                exchange.begin_pass()
                tokens = []
                for _ in range(2):
                    rows = torch.tanh(rows @ weight)
                    transfer = exchange.start_transfer(route_of(comm.rank), rows, kind="halo")
                    assert transfer is not None
                    rows_read, token = receive_rows(transfer, rows)
                    tokens.append(token)
                    rows = rows + rows_read.sin().sum()
                return attach_tokens((rows**2).sum(), tokens)

            with comm.ledger.phase("forward"):
                loss = checkpoint(run, rows, use_reentrant=False) if recompute else run(rows)
            with comm.ledger.phase("backward"):
                loss.backward()
            assert rows.grad is not None
            assert weight.grad is not None
            sent = [sum(v for k, v in comm.ledger.rows_sent.items() if k[1] == kind) for kind in ("halo", "masks")]
            outputs.append((rows.grad, weight.grad.clone(), sent))
        return outputs

    once, again = (as_threads(lambda comm, r=r: work(comm, r), NUM_RANKS) for r in (False, True))  # type: ignore[misc]
    for rank in range(NUM_RANKS):
        for (rows, weight, sent), (rows_again, weight_again, sent_again) in zip(once[rank], again[rank], strict=True):
            assert torch.equal(rows, rows_again)
            assert torch.equal(weight, weight_again)
            assert sent == sent_again


def test_state_dict_resumes_in_another_exchange() -> None:
    passes = rows_of(4)

    def work(comm: Comm) -> None:
        undisturbed, first, second = (stale_exchange(comm, 0.5) for _ in range(3))
        wanted = read_rows(comm, undisturbed, passes)
        read_rows(comm, first, passes[:3])
        second.load_state_dict([{name: rows.clone() for name, rows in each.items()} for each in first.state_dict()])
        for outputs, rows_read in zip(read_rows(comm, second, passes[3:]), wanted[3:], strict=True):
            assert torch.equal(outputs, rows_read)

    as_threads(work, NUM_RANKS)


@pytest.mark.parametrize("change", ["lost", "rows", "width", "not a number"])
def test_all_ranks_send_all_rows_if_one_rank_has_no_matching_state(change: str) -> None:
    passes = rows_of(5)

    def work(comm: Comm) -> tuple[Tensor, int]:
        exchange = stale_exchange(comm, 2.0)  # suppresses all rows
        read_rows(comm, exchange, passes[:2])
        if comm.rank == 2:
            state = exchange.state_dict()
            changed = {
                "lost": [],
                "rows": [{"sent": each["sent"][1:], "received": each["received"]} for each in state],
                "width": [{name: rows[:, :1] for name, rows in each.items()} for each in state],
                "not a number": [{"sent": each["sent"] * math.nan, "received": each["received"]} for each in state],
            }
            exchange.load_state_dict(changed[change])
        before = comm.ledger.rows_sent["forward", "halo"]
        rows_read, _ = one_pass(comm, exchange, passes[2][comm.rank])
        return rows_read, comm.ledger.rows_sent["forward", "halo"] - before

    exact = reference(passes[2:3], 0.0)[0]
    for rank, (rows_read, sent) in enumerate(as_threads(work, NUM_RANKS)):
        assert torch.equal(rows_read, exact.read[rank])
        assert sent == route_of(rank).rows_sent


def test_begin_epoch_updates_the_threshold_from_losses() -> None:
    losses = []

    def part(first: float | None, last: float | None) -> float:
        losses.append((first, last))
        return 0.5

    comm = SingleRankComm()
    exchange = StaleExchange(comm, FreshExchange(comm), part)
    exchange.begin_epoch(2.0, 1.5)
    assert losses == [(None, None), (2.0, 1.5)]
