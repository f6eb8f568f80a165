from __future__ import annotations

import itertools
import math
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strobe.placement.algorithms.pricing_kernels as loops
from strobe.errors import InputError
from strobe.graph import DynamicGraph, from_edges
from strobe.placement import Online, Partition
from strobe.placement.online import PriceRule, weigh_links
from tests.support import plain_online
from tests.support.graphs import AWKWARD, PlainGraph, PlainSnapshot, dynamic_graphs
from tests.support.placement_cases import communities, owned
from tests.support.plain_online import NoRoomError, Owners, PlainOnline, utility, weights

onlines = st.builds(
    Online,
    window=st.integers(1, 3),
    segments=st.integers(1, 2),
    capacity=st.none() | st.integers(1, 60),
    slack=st.sampled_from([1.0, 1.5]),
    sweeps=st.integers(0, 4),
    eta=st.sampled_from([1.0, 2.0, 6.0]),
    price=st.sampled_from(["marginal", "total"]),
)
PRICING = "strobe.placement.online"
slow_at_first = settings(deadline=None)  # the first call compiles
every_price = pytest.mark.parametrize("price", ["marginal", "total"])


def changing(num_nodes: int = 30, num_snapshots: int = 6, columns: int = 8) -> DynamicGraph:
    """Random edges, of which a third changes; all nodes are always there."""
    drawn = np.random.default_rng(0)
    edges = drawn.integers(0, num_nodes, (2, 3 * num_nodes))
    shots = []
    for _ in range(num_snapshots):
        new = drawn.random(3 * num_nodes) < 0.3
        edges = np.where(new, drawn.integers(0, num_nodes, edges.shape), edges)
        shots.append(edges)
    return from_edges(shots, num_nodes=num_nodes, directed=False, x=np.ones((num_nodes, columns)))


def by_snapshot(graph: DynamicGraph, placed: Partition) -> list[Owners]:
    found: list[Owners] = [{} for _ in graph]
    for (t, v), owner in owned(graph, placed).items():
        found[t][v] = owner
    return found


def assert_as_plain(plain: PlainGraph, online: Online, num_ranks: int) -> None:
    """The same owners, or refused for the same reason. (The plain one checks capacities at every move.)"""
    graph = plain.build()
    try:
        expected = plain_online.place(plain, num_ranks, online)
    except NoRoomError as none:
        with pytest.raises(InputError, match=rf"snapshot {none.t} .* rank {none.rank} .* lacks {none.missing} bytes"):
            online.place(graph, [], num_ranks)
    else:
        assert by_snapshot(graph, online.place(graph, [], num_ranks)) == expected


@slow_at_first
@given(dynamic_graphs(), onlines, st.integers(1, 3))
def test_owners_are_those_of_the_plain_algorithm(plain: PlainGraph, online: Online, num_ranks: int) -> None:
    assert_as_plain(plain, online, num_ranks)


@every_price
@pytest.mark.parametrize("plain", AWKWARD.values(), ids=list(AWKWARD))
def test_owners_are_those_of_the_plain_algorithm_on_awkward_graphs(plain: PlainGraph, price: PriceRule) -> None:
    for capacity in (None, 20):
        assert_as_plain(plain, Online(price=price, capacity=capacity, sweeps=9), 2)


@every_price
@pytest.mark.parametrize("options", [{}, {"window": 2, "slack": 1.3}, {"eta": 30.0, "segments": 2}, {"capacity": 80}])
def test_owners_are_those_of_the_plain_algorithm_where_much_moves(options: dict[str, Any], price: PriceRule) -> None:
    """Nodes that come, go and return among communities that change, with rewards and prices that matter."""
    drawn, shots = random.Random(2), []
    for t in range(7):
        nodes = [v for v in range(16) if drawn.random() < 0.85]
        pairs = itertools.combinations(nodes, 2)
        edges = [(a, b, 1.0) for a, b in pairs if drawn.random() < (0.5 if (a + t) % 3 == (b + t // 2) % 3 else 0.1)]
        shots.append(PlainSnapshot(nodes, edges, t))
    plain = PlainGraph(16, shots, directed=False, node_x=[[0.0, 0.0]] * 16)
    assert_as_plain(plain, Online(price=price, sweeps=12, **options), 3)


class NeverNegative(np.ndarray[Any, Any]):
    """Free bytes of ranks; checks after every write that the first row is not negative."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        now = np.asarray(self)[0] if self.ndim == 2 else np.asarray(self)
        assert (now >= 0).all(), "a rank has more than its capacity"


def watched(loop: Callable[..., int], room: int) -> Callable[..., int]:
    """The same loop, not compiled, with an eye on one of its arguments."""

    def run(*given: Any) -> int:
        arguments = list(given)
        arguments[room] = arguments[room].view(NeverNegative)
        return int(loop.py_func(*arguments))  # type: ignore[attr-defined]

    return run


@every_price
@pytest.mark.parametrize("capacity", [None, 450, 600])
def test_no_rank_ever_has_more_than_its_capacity(
    capacity: int | None, price: PriceRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loops themselves, at every move; and what is kept, counted row by row, after every snapshot."""
    online = Online(capacity=capacity, price=price, window=3, sweeps=20)
    expected = online.place(changing(), [], 4)
    monkeypatch.setattr(f"{PRICING}.assign_base_partition", watched(loops.assign_base_partition, 3))
    monkeypatch.setattr(f"{PRICING}.sweep", watched(loops.sweep, 10))
    graph = changing()
    placed = online.place(graph, [], 4)
    assert owned(graph, placed) == owned(graph, expected)
    slow, history = PlainOnline(online, 4, 8), by_snapshot(graph, placed)
    for t in range(len(graph)):
        assert max(slow.held(history[max(0, t - 2) : t + 1])) <= (capacity or math.inf)
    assert any(before != after for before, after in itertools.pairwise(history))  # there was something to watch


def test_what_an_error_says_would_do_does() -> None:
    graph = changing(num_nodes=9, num_snapshots=6)
    with pytest.raises(InputError, match=r"Give each of the 2 ranks ([\d,]+) bytes") as caught:
        Online(capacity=200).place(graph, [], 2)
    would_do = int(str(caught.value).split("ranks ")[1].split(" bytes")[0].replace(",", ""))
    assert 200 < would_do < 9 * (32 + 3 * 8)
    assert len(owned(graph, Online(capacity=would_do).place(graph, [], 2))) == 54


def test_one_that_refused_a_snapshot_is_as_it_was() -> None:
    graph = changing(num_nodes=9, num_snapshots=6)
    arriving = Online(capacity=200).start(2)
    for snapshot in graph[:2]:
        arriving.place_next(snapshot)
    before = pickle.dumps(arriving.state_dict())
    with pytest.raises(InputError, match="snapshot 2"):
        arriving.place_next(graph[2])
    assert pickle.dumps(arriving.state_dict()) == before


@slow_at_first
@given(
    st.lists(st.integers(-1, 1), max_size=5),
    st.lists(st.integers(0, 12), min_size=2, max_size=2),
    st.sampled_from([(4, 1), (4, 4), (5, 3)]),
)
def test_a_base_partition_fails_only_where_nothing_fits(
    last: list[int], free: list[int], sizes: tuple[int, int]
) -> None:
    full, change = sizes
    room, owner = np.array(free), np.empty(len(last), np.int16)
    lost = loops.assign_base_partition(np.array(last, np.int16), full, change, room, owner)

    def fits(ranks: tuple[int, ...]) -> bool:
        taken = [0, 0]
        for rank, before in zip(ranks, last, strict=True):
            taken[rank] += change if rank == before else full
        return all(mine <= given for mine, given in zip(taken, free, strict=True))

    assert (lost == -1) == any(fits(ranks) for ranks in itertools.product((0, 1), repeat=len(last)))
    assert lost != -1 or fits(tuple(owner.tolist()))


def cliques(shares: list[float], drawn: random.Random) -> PlainGraph:
    """Four nodes with two columns; every pair has an edge with the chance of its snapshot."""
    pairs = list(itertools.combinations(range(4), 2))
    shots = [
        PlainSnapshot([0, 1, 2, 3], [(a, b, 1.0) for a, b in pairs if drawn.random() < share], t)
        for t, share in enumerate(shares)
    ]
    return PlainGraph(4, shots, directed=False, node_x=[[0.0, 0.0]] * 4)


def best_utility(plain: PlainGraph, online: Online) -> int:
    """Of all placements on two ranks that never exceed the capacity."""
    slow, links = PlainOnline(online, 2, 2), [weights(plain, t) for t in range(len(plain.snapshots))]
    assert online.capacity is not None
    ways: list[Owners] = [dict(enumerate(ranks)) for ranks in itertools.product((0, 1), repeat=4)]
    worth = [[utility(each, way) for way in ways] for each in links]
    best = 0
    for chosen in itertools.product(range(len(ways)), repeat=len(links)):
        total = sum(of[way] for of, way in zip(worth, chosen, strict=True))
        history = [ways[way] for way in chosen]
        if total > best and all(max(slow.held(history[: t + 1])) <= online.capacity for t in range(len(history))):
            best = total
    return best


@pytest.mark.parametrize("capacity", [48, 64])
def test_utility_is_within_the_proven_ratio_of_the_best(capacity: int) -> None:
    """Two ranks, four nodes of which each has room for three or for all, three snapshots."""
    drawn, online = random.Random(1), Online(capacity=capacity, window=3)
    ratio = 2 * max(1, math.log(2 * online.eta))
    for _ in range(12):
        plain = cliques([drawn.choice([0.3, 0.5, 0.8]) for _ in range(3)], drawn)
        graph = plain.build()
        placed = online.place(graph, [], 2)
        found = sum(weigh_links(graph[t]).utility(placed.owners(graph, t)) for t in range(3))
        assert best_utility(plain, online) <= ratio * found


def test_communities_are_found_and_stay_while_nothing_changes() -> None:
    graph = communities([8, 8, 8], 5)
    owners = owned(graph, Online(slack=1.3).place(graph, [], 3))
    assert all(owner == owners[0, v] for (_, v), owner in owners.items())
    cut = sum(owners[0, u] != owners[0, v] for u, v in zip(*graph[0].edges()[:2], strict=True))
    assert cut == 2


def test_less_is_cut_than_before_sweeps_and_ranks_stay_about_even() -> None:
    graph = changing(num_nodes=400)

    def kept(placed: Partition) -> float:
        links = [weigh_links(snapshot) for snapshot in graph]
        return sum(each.utility(placed.owners(graph, t)) / each.total for t, each in enumerate(links)) / len(links)

    base, improved = Online(sweeps=0).place(graph, [], 4), Online().place(graph, [], 4)
    assert kept(base) < 0.3
    assert kept(improved) > 0.4
    cells = [np.bincount(improved.owners(graph, t), minlength=4).max() for t in range(len(graph))]
    assert max(cells) <= 1.2 * 100


def test_a_node_that_was_away_is_kept_in_full_again() -> None:
    """Rows of 8 bytes, changes of 4. Node 1 is away for a snapshot; then there is room for a change, but not a row."""
    edges = np.zeros((2, 0), np.int64)
    nodes = [[0, 1], [0], [0, 1]]
    graph = from_edges([edges] * 3, num_nodes=2, nodes=nodes, x=np.ones((2, 2)))
    Online(window=3, capacity=16 + 4 + 12).place(graph, [], 1)
    with pytest.raises(InputError, match=r"snapshot 2 .* lacks 1 bytes for the 8 of node 1"):
        Online(window=3, capacity=16 + 4 + 11).place(graph, [], 1)
