"""Overlapped exchange: same numbers, same bytes, no deadlock."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe.cli.options.plan import override_choices
from strobe.comm import Comm, SingleRankComm, Work
from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, Halo, NoExchange, NoTimeExchange, Overlapped, Relay, Stale
from strobe.exchange.overlap.strategy import OverlappedExchange
from strobe.exchange.stale import StaleExchange
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models import make_model
from strobe.models.structure import GCN
from strobe.plan import Plan
from strobe.registry import make_strategy
from strobe.view import LocalPartition, Owners, View, WindowData
from tests.exchange.test_exact import random_cells, random_nodes, run_on_one_rank, run_on_ranks
from tests.support.model_cases import CHANGING, INPUTS, with_inputs
from tests.support.ranks import Hub, ThreadComm, as_threads
from tests.support.runs import same_tensors

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
    "roland": {"convolution": "sage", "update": "moving-average"},
    "gc-lstm": {},
    "gcn": {"layers": 3},
}
STAGES = [name for name in MODELS if name not in ("dcrnn", "gc-lstm")]
"""Models that do not step through snapshots."""

HALO, OVERLAPPED, BLOCKING = Halo(), Overlapped(), Overlapped(overlap=False)


def social() -> DynamicGraph:
    return with_inputs(Social(nodes=24, snapshots=5, edges=60, communities=3, seed=1).write())


def model_of(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    model = make_model(name, INPUTS, hidden=4, **MODELS[name]).to(dtype)
    for layer in model.modules():
        if isinstance(layer, GCN) and layer.bias is not None:
            nn.init.constant_(layer.bias, 0.5)  # so that ReLU passes gradients
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
    """Losses, gradients and weights of a few steps over one window on one rank."""
    placed = random_nodes(graph, comm.num_ranks, 1)
    exchange = Exchange(structure=structure, time=Relay(pipeline_groups=2))
    share = LocalPartition(
        comm,
        exchange,
        Owners(graph, placed, range(len(graph))),
        np.full(graph.num_nodes, -1, np.int16),
        torch.device("cpu"),
    )
    cells, model, results = WindowData(graph, local_partition=share, dtype=dtype), deepcopy(model), list[Tensor]()
    for step in range(steps):
        if epochs:
            for row_exchange in share.row_exchanges.values():
                row_exchange.begin_epoch(None if not step else 1.0, None if not step else 0.5)
        view = View(cells)
        out = model(view)
        loss = view.attach_exchanges((out * torch.linspace(-1, 1, out.shape[1], dtype=dtype)).pow(2).mean(1).sum())
        model.zero_grad()
        loss.backward()
        weights = list(model.parameters())
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        total = comm.all_reduce(torch.cat([each.flatten() for each in grads]), kind="gradients")
        results += [loss.detach(), total]
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(weights).detach() - 0.01 * total, weights)
    return [*results, nn.utils.parameters_to_vector(model.parameters()).detach()]


@pytest.mark.parametrize(("number", "name"), [*enumerate(MODELS)])
def test_overlapped_equals_one_rank(number: int, name: str) -> None:
    """Every model with one of three numbers of ranks and one of two placements, each of which meets each of those."""
    graph, model, cuts = with_inputs(CHANGING.build()), model_of(name), [0, 4, 6]
    exchange = Exchange(structure=OVERLAPPED, time=Relay(pipeline_groups=2))
    placed = (random_cells, random_nodes)[number % 2](graph, 2 + number % 3, number)
    expected = run_on_one_rank(lambda: deepcopy(model), graph, cuts)
    got = run_on_ranks(lambda: deepcopy(model), graph, cuts, placed, exchange)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("number", "name"), [*enumerate(MODELS)])
def test_overlap_changes_no_bit_and_sends_the_rows_and_bytes_of_its_inner_exchange(number: int, name: str) -> None:
    dtype = (torch.float32, torch.float64)[number % 2]
    graph, model = social(), model_of(name, dtype)

    def work(comm: Comm, structure: Any) -> tuple[list[Tensor], list[dict[Any, int]]]:
        results = trained(structure, comm, graph=graph, model=model, steps=2, dtype=dtype)
        counts = comm.ledger.rows_sent, comm.ledger.sent
        return results, [{key: count for key, count in each.items() if key[1] == "halo"} for each in counts]

    ranks = [as_threads(partial(work, structure=each), 3) for each in (OVERLAPPED, BLOCKING, HALO)]
    for (results, sent), (expected, sent_at_once), (_, sent_inside) in zip(*ranks, strict=True):
        assert same_tensors(results, expected)
        assert sent == sent_at_once == sent_inside
    assert any(rows for _, (rows, _) in ranks[0])


@pytest.mark.parametrize("name", ["tgcn", "gat-lstm"])
def test_overlap_suppresses_the_same_stale_rows_and_none_at_threshold_0(name: str) -> None:
    stale = Stale(threshold=0.5)
    exchanges = (
        Overlapped(inner=stale),
        Overlapped(inner=stale, overlap=False),
        Overlapped(inner=Stale(threshold=0)),
        OVERLAPPED,
    )
    graph, model = social(), model_of(name)
    results = [as_threads(partial(trained, each, graph=graph, model=model, epochs=True), 3) for each in exchanges]
    for overlapped, blocking, at_0, fresh in zip(*results, strict=True):
        assert same_tensors(overlapped, blocking)
        assert not torch.equal(overlapped[-1], fresh[-1]), "some row was suppressed"
        assert same_tensors(at_0, fresh)


class RecordingComm(ThreadComm):
    """Records sends of and waits for halo rows."""

    def __init__(self, hub: Hub, rank: int) -> None:
        super().__init__(hub, rank)
        self.events: list[tuple[str, int]] = []

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        number = sum(what == "send" for what, _ in self.events)
        pending = super().all_to_all_rows_async(sends, counts, like, kind=kind)
        if kind == "halo":
            self.events.append(("send", number))
            return [_CallbackWork(work, lambda: self.events.append(("wait", number))) for work in pending]
        return pending


class _CallbackWork(Work):
    def __init__(self, work: Work, callback: Callable[[], None]) -> None:
        self._work, self._callback = work, callback

    def wait(self) -> Tensor:
        self._callback()
        return self._work.wait()


def events(structure: Any) -> list[tuple[str, int]]:
    graph, model = social(), model_of("mpnn-lstm")

    def work(comm: Comm) -> list[tuple[str, int]]:
        trained(structure, comm, graph=graph, model=model, steps=1)
        assert isinstance(comm, RecordingComm)
        return comm.events

    return as_threads(work, 2, RecordingComm)[0]


def test_all_rows_are_sent_before_the_first_wait_unless_nothing_overlaps() -> None:
    passes = (range(5), range(5, 10))  # forward and backward
    assert events(OVERLAPPED) == [(what, number) for each in passes for what in ("send", "wait") for number in each]
    assert events(BLOCKING) == [(what, number) for number in range(10) for what in ("send", "wait")]


class DelayedComm(ThreadComm):
    """A rank with random delays."""

    def __init__(self, hub: Hub, rank: int) -> None:
        super().__init__(hub, rank)
        self._random = random.Random(rank)

    def _delay(self) -> None:
        if self._random.random() < 0.2:
            time.sleep(self._random.random() * 1e-3)

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        self._delay()
        pending = super().all_to_all_rows_async(sends, counts, like, kind=kind)
        self._delay()
        return [_CallbackWork(work, self._delay) for work in pending]

    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        self._delay()
        return super().all_gather_object(value, kind=kind)


@pytest.mark.parametrize(
    ("structure", "names"),
    [(OVERLAPPED, STAGES), (Overlapped(inner=Stale(threshold=0)), STAGES[::3])],
    ids=["halo", "stale"],
)
def test_ranks_with_random_delays_finish_and_agree(structure: Any, names: list[str]) -> None:
    """Fitted predictions change the order of snapshots between epochs."""
    graph = with_inputs(Social(nodes=9, snapshots=3, edges=12, communities=2, seed=1).write())
    models = [model_of(name) for name in names]

    def work(comm: Comm) -> list[list[Tensor]]:
        return [trained(structure, comm, graph=graph, model=model, epochs=True) for model in models]

    for delayed, plain in zip(as_threads(work, 3, DelayedComm), as_threads(work, 3), strict=True):
        torch.testing.assert_close(delayed, plain, rtol=1e-9, atol=1e-9)


def test_failing_stage_closes_all_coroutines() -> None:
    graph = social()

    async def fails(view: View, x: Tensor) -> Tensor:
        del view
        raise ValueError(f"on purpose, {len(x)} rows")

    def work(comm: Comm) -> None:
        placed = random_nodes(graph, comm.num_ranks, 1)
        exchange = Exchange(structure=OVERLAPPED, time=NoTimeExchange())
        home = np.full(graph.num_nodes, -1, np.int16)
        share = LocalPartition(comm, exchange, Owners(graph, placed, range(5)), home, torch.device("cpu"))
        view = View(WindowData(graph, local_partition=share))
        with pytest.raises(ValueError, match="on purpose"):
            view.run_per_snapshot(fails, view.x * 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a coroutine that was never awaited
        as_threads(work, 2)


def test_overlapped_has_the_needs_gives_and_exactness_of_its_inner_exchange() -> None:
    for inner in (Halo(), NoExchange(), Cached(hops=1), Stale(), Stale(threshold=0)):
        choice = Overlapped(inner=inner)
        assert (choice.needs, choice.gives, choice.exact) == (inner.needs, inner.gives, inner.exact)
        assert choice.cache_hops(3) == inner.cache_hops(3)
    assert Overlapped.exact
    with pytest.raises(OptionError, match="are free"):
        Overlapped(inner=Cached()).check_cache_size(10, 5, 2)


@pytest.mark.parametrize("inner", [Overlapped(), Relay()], ids=str)
def test_invalid_inner_exchange_is_refused(inner: Any) -> None:
    with pytest.raises(OptionError, match="inner of overlapped"):
        Overlapped(inner=inner)


def test_stale_refuses_overlapped_as_inner() -> None:
    with pytest.raises(OptionError, match="overlapped with inner=stale"):
        Stale(inner=Overlapped())


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("overlapped", Overlapped()),
        ("overlapped:overlap=false", Overlapped(overlap=False)),
        ("overlapped:inner=stale:threshold=0.3", Overlapped(inner=Stale(threshold=0.3))),
        ("overlapped:inner=[stale:threshold=0.3,adapt=shrink]", Overlapped(inner=Stale(threshold=0.3, adapt="shrink"))),
    ],
)
def test_overlapped_from_the_command_line_and_json(text: str, choice: Overlapped) -> None:
    plan = override_choices(Plan(), {"structure": text})
    assert plan.exchange.structure == choice
    assert Plan.from_json(plan.to_json()) == plan
    assert make_strategy("structure", choice.to_json()) == choice


def test_row_exchanges__of_snapshots_get_losses_and_have_their_own_state() -> None:
    def row_exchange() -> OverlappedExchange:
        results = Overlapped(inner=Stale()).make_row_exchange(SingleRankComm())
        assert isinstance(results, OverlappedExchange)
        return results

    first = row_exchange()
    assert first.state_dict() == []
    first.load_state_dict([{"exchanges": [[]], "timing": None}])  # of a window of one snapshot
    first.begin_epoch(2.0, 1.0)
    late = first.for_snapshot(1)
    assert isinstance(late, StaleExchange)
    assert late._threshold == Stale().relative_threshold(2.0, 1.0)
    first.timing.end_stage()
    state = first.state_dict()
    second = row_exchange()
    second.load_state_dict(deepcopy(state))
    assert second.state_dict() == state
