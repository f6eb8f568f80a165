from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from strobe.comm import Alone, Comm
from strobe.comm.rows import Route, tied
from strobe.exchange.delivery import Fresh, arrivals
from strobe.exchange.sparing import Sparing
from tests.comm.jobs import NUM_RANKS, ROWS, SENDS, route_of
from tests.ranks import as_threads

WIDTH, PASSES = 2, 6
SHARES = [0.0, 0.3, 0.7, 1.0, 2.0]


def rows_of(seed: int) -> list[list[Tensor]]:
    """The rows of every rank in every pass: each moves by steps of its own size."""
    drawn = torch.Generator().manual_seed(seed)
    found = [[torch.randn(n, WIDTH, dtype=torch.float64, generator=drawn) for n in ROWS]]
    for _ in range(PASSES - 1):
        sizes = [torch.rand(n, 1, dtype=torch.float64, generator=drawn) ** 3 for n in ROWS]
        steps = [size * torch.randn(len(size), WIDTH, dtype=torch.float64, generator=drawn) for size in sizes]
        found.append([x + step for x, step in zip(found[-1], steps, strict=True)])
    return found


@dataclass(frozen=True)
class Plain:
    """One pass, the slow way: which of the rows from whom to whom travel, what everyone reads, and theta."""

    travel: dict[tuple[int, int], list[bool]]
    heard: list[Tensor]
    theta: float


def plainly(passes: list[list[Tensor]], share: float) -> list[Plain]:
    told: dict[tuple[int, int, int], Tensor] = {}
    found = []
    for x in passes:
        now = {(s, to, k): x[s][row] for (s, to), rows in SENDS.items() for k, row in enumerate(rows)}
        far = {key: float((row - told[key]).norm()) if told else math.inf for key, row in now.items()}
        theta = share * max(far.values()) if told else 0.0
        goes = {key: far[key] >= theta for key in now}
        told |= {key: now[key] for key in now if goes[key]}
        heard = [
            torch.stack([told[key] for key in sorted(now) if key[1] == rank])
            if any(key[1] == rank for key in now)
            else x[rank].new_empty(0, WIDTH)
            for rank in range(NUM_RANKS)
        ]
        travel = {pair: [goes[*pair, k] for k in range(len(rows))] for pair, rows in SENDS.items()}
        found.append(Plain(travel, heard, theta))
    return found


def sparing(comm: Comm, share: float) -> Sparing:
    return Sparing(comm, Fresh(comm), lambda first, last: share)


def one_pass(comm: Comm, courier: Sparing, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a rank reads, and the gradient of its rows. A reader gives the n-th row it reads n times its rank + 2."""
    x = x.clone().requires_grad_()
    courier.pass_begins()
    delivery = courier.delivery(route_of(comm.rank), x, kind="halo")
    if delivery is None:
        return x.new_empty(0, WIDTH), torch.zeros_like(x)
    with comm.ledger.phase("forward"):
        heard, token = arrivals(delivery, x)
    aim = (comm.rank + 2) * torch.arange(1.0, len(heard) + 1, dtype=x.dtype)[:, None]
    with comm.ledger.phase("backward"):
        tied((heard * aim).sum(), [token]).backward()
    assert x.grad is not None
    return heard.detach(), x.grad


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", SHARES)
def test_rows_travel_when_they_have_moved_far_from_what_was_last_sent(share: float, seed: int) -> None:
    passes = rows_of(seed)
    wanted = plainly(passes, share)

    def work(comm: Comm) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
        courier, found = sparing(comm, share), []
        for x in passes:
            comm.ledger.clear()
            heard, gradient = one_pass(comm, courier, x[comm.rank])
            found.append((heard, gradient, comm.ledger.cut()))
        return found

    told = as_threads(work, NUM_RANKS)
    for number, plain in enumerate(wanted):
        for rank in range(NUM_RANKS):
            heard, gradient, ledger = told[rank][number]
            torch.testing.assert_close(heard, plain.heard[rank], rtol=0, atol=0)
            torch.testing.assert_close(gradient, gradients(plain)[rank], rtol=0, atol=1e-12)
            check_ledger(rank, plain, ledger, first=number == 0)


def gradients(plain: Plain) -> list[Tensor]:
    """Of all ranks' rows: from those that travelled alone."""
    found = [torch.zeros(rows, WIDTH, dtype=torch.float64) for rows in ROWS]
    for to in range(NUM_RANKS):
        place = 0
        for source in range(NUM_RANKS):
            for row, went in zip(SENDS.get((source, to), []), plain.travel.get((source, to), []), strict=True):
                place += 1
                found[source][row] += went * (to + 2) * place
    return found


def check_ledger(rank: int, plain: Plain, ledger: dict[str, Any], *, first: bool) -> None:
    """What was sent and what was not are together what a fresh exchange sends; marks are a bit per row."""
    row = WIDTH * 8
    there = [went for (source, _), each in plain.travel.items() if source == rank for went in each]
    back = [went for (_, to), each in plain.travel.items() if to == rank for went in each]
    for phase, travelled in (("forward", there), ("backward", back)):
        key = f"{phase}/halo"
        assert ledger["rows_sent"].get(key, 0) == sum(travelled)
        assert ledger["sent"].get(key, 0) == sum(travelled) * row
        assert ledger["rows_spared"].get(key, 0) == len(travelled) - sum(travelled)
        assert ledger["spared"].get(key, 0) == (len(travelled) - sum(travelled)) * row
    marks = {} if first else {to: -(-len(rows) // 8) for (source, to), rows in SENDS.items() if source == rank}
    assert sum(sent for key, sent in ledger["sent"].items() if key.endswith("/marks")) == sum(marks.values())


@pytest.mark.parametrize("share", SHARES)
def test_what_is_read_is_never_theta_or_more_away_from_what_it_should_be(share: float) -> None:
    passes = rows_of(9)
    told = as_threads(lambda comm: _heard(comm, sparing(comm, share), passes), NUM_RANKS)
    stale = 0
    for number, (x, plain) in enumerate(zip(passes, plainly(passes, share), strict=True)):
        for rank in range(NUM_RANKS):
            true = [x[source][row] for (source, to), rows in sorted(SENDS.items()) if to == rank for row in rows]
            for row, wanted in zip(told[rank][number], true, strict=True):
                off = float((row - wanted).norm())
                assert off < plain.theta or off == 0
                stale += off > 0
    assert (stale > 0) == (share > 0), "and something was left behind"


def _heard(comm: Comm, courier: Sparing, passes: list[list[Tensor]]) -> list[Tensor]:
    return [one_pass(comm, courier, x[comm.rank])[0] for x in passes]


def test_small_moves_add_up_until_the_row_is_sent() -> None:
    """One row creeps while another leaps: compared with the pass before it would never travel."""
    route = {0: Route({1: torch.tensor([0, 1])}, {}), 1: Route({}, {0: 2})}

    def work(comm: Comm) -> list[int]:
        courier, sent = sparing(comm, 0.5), []
        for number in range(8):
            x = torch.tensor([[0.2 * number], [float(number % 2)]] if comm.rank == 0 else [], dtype=torch.float64)
            x = x.reshape(-1, 1).requires_grad_()
            courier.pass_begins()
            delivery = courier.delivery(route[comm.rank], x, kind="halo")
            assert delivery is not None
            arrivals(delivery, x)
            sent.append(comm.ledger.rows_sent["prepare", "halo"])
        return sent

    sent = as_threads(work, 2)[0]
    # The leap, of 1, goes every time; the creep of 0.2 a pass when it has come to half of that, after 3.
    assert [b - a for a, b in zip([0, *sent], sent, strict=False)] == [2, 1, 1, 2, 1, 1, 2, 1]


def test_the_furthest_is_that_of_all_ranks() -> None:
    def work(comm: Comm) -> int:
        courier = sparing(comm, 0.5)
        for number in range(2):
            before = comm.ledger.rows_sent["forward", "halo"]
            step = {0: 1.0, 1: 0.0, 2: 0.4}[comm.rank]  # alone, each would send everything
            one_pass(comm, courier, torch.full((ROWS[comm.rank], WIDTH), number * step, dtype=torch.float64))
        return comm.ledger.rows_sent["forward", "halo"] - before

    assert as_threads(work, NUM_RANKS) == [3, 0, 0]


def test_a_rank_that_takes_no_part_agrees_all_the_same() -> None:
    """It has nobody to talk to, and the others wait for its word."""

    def work(comm: Comm) -> list[int]:
        route = {0: Route({1: torch.tensor([0])}, {}), 1: Route({}, {0: 1})}.get(comm.rank, Route({}, {}))
        courier, found = sparing(comm, 0.5), []
        for number in range(3):
            x = torch.full((1, 1), float(number), requires_grad=True)
            courier.pass_begins()
            delivery = courier.delivery(route, x, kind="halo")
            assert (delivery is None) == (comm.rank == 2)
            found.append(0 if delivery is None else len(arrivals(delivery, x)[0]))
        return found

    assert as_threads(work, 3) == [[0, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_each_exchange_of_a_pass_has_its_own_memory() -> None:
    passes = rows_of(1)

    def work(comm: Comm) -> list[list[Tensor]]:
        courier, found = sparing(comm, 0.5), []
        for x in passes:
            courier.pass_begins()
            both = []
            for rows in (x[comm.rank], 100 - 5 * x[comm.rank].repeat(1, 2)):  # another width, another scale
                rows = rows.clone().requires_grad_()
                delivery = courier.delivery(route_of(comm.rank), rows, kind="halo")
                assert delivery is not None
                both.append(arrivals(delivery, rows)[0].detach())
            found.append(both)
        return found

    told = as_threads(work, NUM_RANKS)
    for number, plain in enumerate(plainly(passes, 0.5)):
        for rank in range(NUM_RANKS):
            first, second = told[rank][number]
            assert torch.equal(first, plain.heard[rank])
            torch.testing.assert_close(second, 100 - 5 * plain.heard[rank].repeat(1, 2))


def test_without_gradients_rows_are_fresh_and_nothing_is_remembered_of_them() -> None:
    passes = rows_of(2)

    def work(comm: Comm) -> list[Tensor]:
        courier = sparing(comm, 2.0)
        one_pass(comm, courier, passes[0][comm.rank])
        before = [{name: rows.clone() for name, rows in each.items()} for each in courier.remembered()]
        fresh = []
        with torch.no_grad():
            for x in passes[1:]:
                courier.pass_begins()
                delivery = courier.delivery(route_of(comm.rank), x[comm.rank], kind="halo")
                assert delivery is not None
                fresh.append(arrivals(delivery, x[comm.rank])[0])
        for each, old in zip(courier.remembered(), before, strict=True):
            assert all(torch.equal(each[name], old[name]) for name in old)
        stale, _ = one_pass(comm, courier, passes[-1][comm.rank])
        return [*fresh, stale]

    told = as_threads(work, NUM_RANKS)
    exact = plainly(passes, 0.0)
    for rank in range(NUM_RANKS):
        for plain, fresh in zip(exact[1:], told[rank], strict=False):
            assert torch.equal(fresh, plain.heard[rank])
        assert torch.equal(told[rank][-1], exact[0].heard[rank])


def test_what_is_computed_again_reads_the_same_and_sends_nothing() -> None:
    passes = rows_of(3)

    def work(comm: Comm, recompute: bool) -> list[tuple[Tensor, Tensor, list[int]]]:
        courier, found = sparing(comm, 0.5), []
        weight = torch.full((WIDTH, WIDTH), 0.7, dtype=torch.float64, requires_grad=True)
        for x in passes:
            comm.ledger.clear()
            rows = x[comm.rank].clone().requires_grad_()

            def run(rows: Tensor) -> Tensor:
                courier.pass_begins()
                tokens = []
                for _ in range(2):
                    rows = torch.tanh(rows @ weight)
                    delivery = courier.delivery(route_of(comm.rank), rows, kind="halo")
                    assert delivery is not None
                    heard, token = arrivals(delivery, rows)
                    tokens.append(token)
                    rows = rows + heard.sin().sum()
                return tied((rows**2).sum(), tokens)

            with comm.ledger.phase("forward"):
                loss = checkpoint(run, rows, use_reentrant=False) if recompute else run(rows)
            with comm.ledger.phase("backward"):
                loss.backward()
            assert rows.grad is not None
            assert weight.grad is not None
            sent = [sum(v for k, v in comm.ledger.rows_sent.items() if k[1] == kind) for kind in ("halo", "marks")]
            found.append((rows.grad, weight.grad.clone(), sent))
        return found

    once, again = (as_threads(lambda comm, r=r: work(comm, r), NUM_RANKS) for r in (False, True))  # type: ignore[misc]
    for rank in range(NUM_RANKS):
        for (rows, weight, sent), (rows_again, weight_again, sent_again) in zip(once[rank], again[rank], strict=True):
            assert torch.equal(rows, rows_again)
            assert torch.equal(weight, weight_again)
            assert sent == sent_again


def test_memories_go_on_elsewhere() -> None:
    passes = rows_of(4)

    def work(comm: Comm) -> None:
        undisturbed, first, second = (sparing(comm, 0.5) for _ in range(3))
        wanted = _heard(comm, undisturbed, passes)
        _heard(comm, first, passes[:3])
        second.remember([{name: rows.clone() for name, rows in each.items()} for each in first.remembered()])
        for found, heard in zip(_heard(comm, second, passes[3:]), wanted[3:], strict=True):
            assert torch.equal(found, heard)

    as_threads(work, NUM_RANKS)


@pytest.mark.parametrize("change", ["lost", "rows", "width", "not a number"])
def test_where_one_rank_remembers_nothing_true_all_send_everything(change: str) -> None:
    passes = rows_of(5)

    def work(comm: Comm) -> tuple[Tensor, int]:
        courier = sparing(comm, 2.0)  # nothing would travel any more
        _heard(comm, courier, passes[:2])
        if comm.rank == 2:
            kept = courier.remembered()
            changed = {
                "lost": [],
                "rows": [{"told": each["told"][1:], "heard": each["heard"]} for each in kept],
                "width": [{name: rows[:, :1] for name, rows in each.items()} for each in kept],
                "not a number": [{"told": each["told"] * math.nan, "heard": each["heard"]} for each in kept],
            }
            courier.remember(changed[change])
        before = comm.ledger.rows_sent["forward", "halo"]
        heard, _ = one_pass(comm, courier, passes[2][comm.rank])
        return heard, comm.ledger.rows_sent["forward", "halo"] - before

    exact = plainly(passes[2:3], 0.0)[0]
    for rank, (heard, sent) in enumerate(as_threads(work, NUM_RANKS)):
        assert torch.equal(heard, exact.heard[rank])
        assert sent == route_of(rank).rows_sent


def test_the_threshold_is_told_by_the_losses_of_epochs() -> None:
    asked = []

    def part(first: float | None, last: float | None) -> float:
        asked.append((first, last))
        return 0.5

    comm = Alone()
    courier = Sparing(comm, Fresh(comm), part)
    courier.epoch_begins(2.0, 1.5)
    assert asked == [(None, None), (2.0, 1.5)]
