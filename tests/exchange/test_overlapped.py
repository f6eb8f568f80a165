"""Rows in flight while others compute: the same numbers, the same bytes, and ranks that never wait for each other."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.cli.plan_options import vary
from strobe.comm import Alone, Arrival, Comm
from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, Halo, Nothing, Overlapped, Relay, Stale, Stay
from strobe.exchange.overlapped import Overlapping
from strobe.exchange.sparing import Sparing
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import make_model
from strobe.models.structure import GCN
from strobe.plan import Plan
from strobe.registry import make
from strobe.view import Cells, Owners, Share, View
from tests.exchange.test_exact import alone, random_cells, random_nodes, together
from tests.models.cases import CHANGING, INPUTS, with_inputs
from tests.ranks import Hub, ThreadComm, as_threads

MODELS: dict[str, dict[str, Any]] = {
    "mpnn-lstm": {},
    "wd-gcn": {"layers": 3},
    "evolvegcn-h": {"layers": 2},
    "evolvegcn-o": {"layers": 2},
    "gat-lstm": {"layers": 2, "heads": 2},
    "sage": {"layers": 2},
    "tgcn": {"layers": 3},
    "dysat": {"layers": 2, "heads": 2},
    "dcrnn": {},
}
STAGES = [name for name in MODELS if name != "dcrnn"]
"""Models whose convolutions are not asked for snapshot by snapshot anyway."""

HALO, OVERLAPPED, IN_TURN = Halo(), Overlapped(), Overlapped(overlap=False)


def social() -> DynamicGraph:
    return with_inputs(Social(nodes=24, snapshots=5, edges=60, communities=3, seed=1).write())


def model_of(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    model = make_model(name, INPUTS, hidden=4, **MODELS[name]).to(dtype)
    for layer in model.modules():
        if isinstance(layer, GCN) and layer.bias is not None:
            nn.init.constant_(layer.bias, 0.5)  # so that rectifiers let gradients through
    return model


def trained(
    structure: Any,
    comm: Comm,
    *,
    graph: DynamicGraph,
    model: nn.Module,
    steps: int = 3,
    dtype: torch.dtype = torch.float64,
    epochs: bool = False,
) -> list[Tensor]:
    """Losses, gradients and weights of a few steps over one window, as one rank sees them."""
    placed = random_nodes(graph, comm.num_ranks, 1)
    exchange = Exchange(structure=structure, time=Relay(groups=2))
    share = Share(
        comm,
        exchange,
        Owners(graph, placed, range(len(graph))),
        np.full(graph.num_nodes, -1, np.int16),
        torch.device("cpu"),
    )
    cells, model, found = Cells(graph, share=share, dtype=dtype), deepcopy(model), list[Tensor]()
    for step in range(steps):
        if epochs:
            for courier in share.couriers.values():
                courier.epoch_begins(None if not step else 1.0, None if not step else 0.5)
        view = View(cells)
        out = model(view)
        loss = view.closed((out * torch.linspace(-1, 1, out.shape[1], dtype=dtype)).pow(2).mean(1).sum())
        model.zero_grad()
        loss.backward()
        weights = list(model.parameters())
        mine = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        total = comm.sum(torch.cat([each.flatten() for each in mine]), kind="gradients")
        found += [loss.detach(), total]
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(weights).detach() - 0.01 * total, weights)
    return [*found, nn.utils.parameters_to_vector(model.parameters()).detach()]


def on_ranks(name: str, structure: Any, num_ranks: int, **options: Any) -> list[list[Tensor]]:
    graph, model = social(), model_of(name, options.get("dtype", torch.float64))
    return as_threads(lambda comm: trained(structure, comm, graph=graph, model=model, **options), num_ranks)


@pytest.mark.parametrize("place", [random_cells, random_nodes], ids=["cells", "nodes"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_ranks_equals_it_on_one(name: str, place: Any) -> None:
    graph, model = with_inputs(CHANGING.build()), model_of(name)
    exchange = Exchange(structure=OVERLAPPED, time=Relay(groups=2))
    for num_ranks, cuts in ((2, [0, 6]), (3, [0, 2, 3, 6]), (4, [0, 6])):
        placed = place(graph, num_ranks, num_ranks)
        out, grads = alone(lambda: deepcopy(model), graph, cuts)
        got, got_grads = together(lambda: deepcopy(model), graph, cuts, placed, exchange)
        torch.testing.assert_close(got, out, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(got_grads, grads, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "numbers"), [(torch.float32, (2, 4)), (torch.float64, (3, 4))], ids=["float32", "float64"]
)
@pytest.mark.parametrize("name", MODELS)
def test_rows_in_flight_change_not_a_bit(name: str, dtype: torch.dtype, numbers: tuple[int, ...]) -> None:
    for num_ranks in numbers:
        flying, waited = (on_ranks(name, each, num_ranks, dtype=dtype) for each in (OVERLAPPED, IN_TURN))
        for one, other in zip(flying, waited, strict=True):
            assert len(one) == len(other)
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_the_exchange_inside(name: str) -> None:
    for flying, plain in zip(*(on_ranks(name, each, 3) for each in (OVERLAPPED, HALO)), strict=True):
        torch.testing.assert_close(flying, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mpnn-lstm", "tgcn", "gat-lstm"])
def test_stale_rows_are_those_of_the_exchange_inside_if_none_is_held_back(name: str) -> None:
    """Each snapshot has memories of its own, whatever order is taken."""
    found = (on_ranks(name, each, 3, steps=4, epochs=True) for each in (Overlapped(inner=Stale(share=0)), OVERLAPPED))
    for stale, fresh in zip(*found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(stale, fresh, strict=True))


@pytest.mark.parametrize("name", ["wd-gcn", "gat-lstm"])
def test_stale_rows_that_are_held_back_are_held_back_alike_with_and_without_overlap(name: str) -> None:
    stale = Stale(share=0.5)
    found = [
        on_ranks(name, each, 3, steps=4, epochs=True)
        for each in (Overlapped(inner=stale), Overlapped(inner=stale, overlap=False), OVERLAPPED)
    ]
    for flying, waited, fresh in zip(*found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(flying, waited, strict=True))
        assert not torch.equal(flying[-1], fresh[-1]), "something was held back"


class Noting(ThreadComm):
    """Notes which rows of neighbours leave, and which are waited for."""

    def __init__(self, hub: Hub, rank: int) -> None:
        super().__init__(hub, rank)
        self.events: list[tuple[str, int]] = []

    def swap_later(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> list[Arrival]:
        number = sum(what == "leave" for what, _ in self.events)
        arrivals = super().swap_later(sends, counts, like, kind=kind)
        if kind == "halo":
            self.events.append(("leave", number))
            return [_Noted(arrival, lambda: self.events.append(("wait", number))) for arrival in arrivals]
        return arrivals


class _Noted(Arrival):
    def __init__(self, arrival: Arrival, note: Callable[[], None]) -> None:
        self._arrival, self._note = arrival, note

    def wait(self) -> Tensor:
        self._note()
        return self._arrival.wait()


def events(structure: Any) -> list[tuple[str, int]]:
    graph, model = social(), model_of("mpnn-lstm")

    def work(comm: Comm) -> list[tuple[str, int]]:
        trained(structure, comm, graph=graph, model=model, steps=1)
        assert isinstance(comm, Noting)
        return comm.events

    return as_threads(work, 2, Noting)[0]


def test_all_rows_leave_before_any_are_waited_for_there_and_back() -> None:
    leave, wait = ([(what, number) for number in range(5)] for what in ("leave", "wait"))
    back = [("leave", number) for number in range(5, 10)], [("wait", number) for number in range(5, 10)]
    assert events(OVERLAPPED) == [*leave, *wait, *back[0], *back[1]]


def test_without_overlap_every_row_is_waited_for_as_soon_as_it_has_left() -> None:
    assert events(IN_TURN) == [(what, number) for number in range(10) for what in ("leave", "wait")]


class Late(ThreadComm):
    """A rank that is now and then late, whatever it does."""

    def __init__(self, hub: Hub, rank: int) -> None:
        super().__init__(hub, rank)
        self._random = random.Random(rank)

    def _dawdle(self) -> None:
        if self._random.random() < 0.2:
            time.sleep(self._random.random() * 1e-3)

    def send(self, to: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        self._dawdle()
        super().send(to, rows, kind=kind, tag=tag)
        self._dawdle()

    def receive(self, source: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Arrival:
        self._dawdle()
        return _Noted(super().receive(source, like, num_rows, kind=kind, tag=tag), self._dawdle)

    def gather(self, value: Any, *, kind: str) -> list[Any]:
        self._dawdle()
        return super().gather(value, kind=kind)


@pytest.mark.parametrize(
    ("structure", "passes"), [(OVERLAPPED, 200), (Overlapped(inner=Stale(share=0)), 40)], ids=["halo", "stale"]
)
def test_two_hundred_passes_of_ranks_that_are_late_at_random_all_end_and_agree(structure: Any, passes: int) -> None:
    """Snapshots, models and epochs in between: predictions are fitted to what was measured, so orders change."""
    graph = with_inputs(Social(nodes=9, snapshots=3, edges=12, communities=2, seed=1).write())
    models, steps = {name: model_of(name) for name in STAGES}, passes // len(STAGES)

    def work(comm: Comm, steps: int) -> list[list[Tensor]]:
        return [
            trained(structure, comm, graph=graph, model=model, steps=steps, epochs=True) for model in models.values()
        ]

    late, punctual = as_threads(lambda comm: work(comm, steps), 3, Late), as_threads(lambda comm: work(comm, 3), 3)
    for found, wanted in zip(late, punctual, strict=True):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one[:6], other[:6], rtol=1e-9, atol=1e-9)  # losses and gradients of three steps


@pytest.mark.parametrize("name", MODELS)
def test_rows_and_bytes_are_those_of_the_exchange_inside(name: str) -> None:
    graph, model = social(), model_of(name)

    def work(comm: Comm, structure: Any) -> tuple[dict[Any, int], dict[Any, int]]:
        trained(structure, comm, graph=graph, model=model, steps=2)
        ledger = comm.ledger
        return (
            {key: rows for key, rows in ledger.rows_sent.items() if key[1] == "halo"},
            {key: sent for key, sent in ledger.sent.items() if key[1] == "halo"},
        )

    found = [as_threads(partial(work, structure=each), 3) for each in (OVERLAPPED, IN_TURN, HALO)]
    assert found[0] == found[1] == found[2]
    assert any(rows for rows, _ in found[0])


def test_a_stage_that_fails_leaves_nobody_waiting() -> None:
    graph = social()

    async def fails(view: View, x: Tensor) -> Tensor:
        del view
        raise ValueError(f"on purpose, {len(x)} rows")

    def work(comm: Comm) -> None:
        placed = random_nodes(graph, comm.num_ranks, 1)
        exchange = Exchange(structure=OVERLAPPED, time=Stay())
        home = np.full(graph.num_nodes, -1, np.int16)
        share = Share(comm, exchange, Owners(graph, placed, range(5)), home, torch.device("cpu"))
        view = View(Cells(graph, share=share))
        with pytest.raises(ValueError, match="on purpose"):
            view.by_snapshot(fails, view.x * 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that was never awaited would be told
        as_threads(work, 2)


# The choice itself.


def test_it_needs_and_gives_what_the_one_inside_does_and_is_as_exact() -> None:
    for inner in (Halo(), Nothing(), Cached(hops=1), Stale(), Stale(share=0)):
        choice = Overlapped(inner=inner)
        assert (choice.needs, choice.gives, choice.exact) == (inner.needs, inner.gives, inner.exact)
        assert choice.keeps(3) == inner.keeps(3)
    assert Overlapped.exact
    with pytest.raises(OptionError, match="room for"):
        Overlapped(inner=Cached()).check_kept(10, 5, 2)


@pytest.mark.parametrize("inner", [Overlapped(), Relay()], ids=str)
def test_one_inside_that_makes_no_sense_is_refused(inner: Any) -> None:
    with pytest.raises(OptionError, match="inner of overlapped must be another exchange of the same stage"):
        Overlapped(inner=inner)


def test_stale_rows_cannot_be_around_rows_in_flight() -> None:
    with pytest.raises(OptionError, match="put overlapped around stale"):
        Stale(fresh=Overlapped())


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("overlapped", Overlapped()),
        ("overlapped:overlap=false", Overlapped(overlap=False)),
        ("overlapped:inner=stale:share=0.3", Overlapped(inner=Stale(share=0.3))),
        ("overlapped:inner=[stale:share=0.3,form=printed]", Overlapped(inner=Stale(share=0.3, form="printed"))),
    ],
)
def test_the_command_line_and_json_know_it(text: str, choice: Overlapped) -> None:
    plan = vary(Plan(), {"structure": text})
    assert plan.exchange.structure == choice
    assert Plan.from_json(plan.to_json()) == plan
    assert make("structure", choice.to_json()) == choice


def test_couriers_of_snapshots_hear_the_losses_and_remember_each_for_itself() -> None:
    def courier() -> Overlapping:
        found = Overlapped(inner=Stale()).courier(Alone())
        assert isinstance(found, Overlapping)
        return found

    first = courier()
    assert first.remembered() == []
    first.remember([{"couriers": [[]], "seconds": None}])  # of a window of one snapshot
    first.epoch_begins(2.0, 1.0)
    late = first.of_snapshot(1)
    assert isinstance(late, Sparing)
    assert late._part == Stale().part_of_furthest(2.0, 1.0), "also one that is made later"
    first.seconds.stage_ends()
    told = first.remembered()
    second = courier()
    second.remember(deepcopy(told))
    assert second.remembered() == told
