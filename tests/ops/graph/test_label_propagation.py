from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.ops.graph import label_propagation
from strobe.ops.graph.label_propagation import Labels, Links, coarsen, compact_labels, count_remote_reads, propagate
from tests.conftest import threads
from tests.support.linked import (
    PlainLinks,
    bipartite,
    complete,
    cycle,
    held_by,
    one_round,
    plain_links,
    random_links,
    star,
)

WORD = 1 << 63
SHAPES = {"bipartite": bipartite(8, 8), "star": star(30), "cycle": cycle(30), "complete": complete(12)}

every_shape = pytest.mark.parametrize("plain", SHAPES.values(), ids=list(SHAPES))
slow_at_first = settings(deadline=None)  # the first call compiles


@pytest.fixture(params=[1, 2])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    with threads(request.param):
        yield request.param


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts vertices into parts of a few, as only large graphs are."""
    cut = label_propagation._parts
    monkeypatch.setattr(label_propagation, "_parts", lambda row_ptr, size=0: cut(row_ptr, 40))


def salt(seed: int, done: int) -> int:
    """What round ``done`` is drawn with."""
    return (seed * 0x9E3779B97F4A7C15 + done * 0xBF58476D1CE4E5B9) % WORD


def spread(plain: PlainLinks, size: list[int], limit: int, **options: object) -> tuple[list[int], int]:
    label, rounds = propagate(plain.build(), np.array(size, np.int64), limit, **options)  # type: ignore[arg-type]
    return label.tolist(), rounds


def random_case(seed: int) -> tuple[PlainLinks, list[int], int]:
    plain = random_links(60, 150, seed)
    return plain, np.random.default_rng(seed).integers(1, 6, 60).tolist(), 4 + 8 * seed


@pytest.mark.parametrize("seed", range(4))
def test_every_round_follows_the_rules(seed: int) -> None:
    plain, size, limit = random_case(seed)
    label = list(range(plain.num))
    for done in range(1, 6):
        label = one_round(plain, label, size, limit, salt(seed, done))
        assert spread(plain, size, limit, rounds=done, seed=seed) == (label, done)
    assert len(set(label)) < plain.num


@slow_at_first
@given(plain_links(), st.data())
def test_a_round_follows_the_rules_on_any_graph(plain: PlainLinks, data: st.DataObject) -> None:
    size = data.draw(st.lists(st.integers(0, 4), min_size=plain.num, max_size=plain.num))
    start = data.draw(st.lists(st.integers(0, 15), min_size=plain.num, max_size=plain.num))
    limit, seed = data.draw(st.integers(0, 12)), data.draw(st.integers(-3, 1 << 40))
    expected = one_round(plain, start, size, limit, salt(seed, 1))
    assert spread(plain, size, limit, rounds=1, seed=seed, label=np.array(start, np.int32))[0] == expected


def test_one_weight_for_all_is_that_weight_for_each() -> None:
    plain = random_links(60, 150)
    links = PlainLinks(plain.num, dict.fromkeys(plain.pairs, 2.0), plain.rows, 3.0).build()
    single = Links(links.row_ptr, links.col, np.array([2.0], np.float32), links.before, links.after, 3.0)
    size = np.ones(plain.num, np.int64)
    label = propagate(links, size, 9)[0]
    assert propagate(single, size, 9)[0].tolist() == label.tolist()
    group, count = compact_labels(label)
    assert dense(coarsen(single, group, count)).tolist() == dense(coarsen(links, group, count)).tolist()


@slow_at_first
@given(plain_links(), st.data())
def test_no_label_of_several_vertices_outgrows_the_limit(plain: PlainLinks, data: st.DataObject) -> None:
    size = data.draw(st.lists(st.integers(1, 9), min_size=plain.num, max_size=plain.num))
    limit = data.draw(st.integers(0, 20))
    label, rounds = spread(plain, size, limit, rounds=20, seed=data.draw(st.integers(0, 99)))
    members, held = Counter(label), held_by(label, size)
    assert all(held[each] <= limit for each, count in members.items() if count > 1)
    assert rounds <= 20


@pytest.mark.parametrize("plain", [random_links(200, 600), SHAPES["bipartite"]], ids=["random", "bipartite"])
def test_a_seed_gives_the_same_labels_on_any_number_of_threads(
    plain: PlainLinks, count: int, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = [1] * plain.num
    in_parts = spread(plain, size, 10, seed=5)
    assert in_parts == spread(plain, size, 10, seed=5)
    monkeypatch.undo()
    assert in_parts == spread(plain, size, 10, seed=5)


def test_another_seed_gives_other_labels() -> None:
    plain = random_links(200, 600)
    assert spread(plain, [1] * 200, 10, seed=1) != spread(plain, [1] * 200, 10, seed=2)


@every_shape
@pytest.mark.parametrize("limit", [5, 1000])
def test_labels_settle_where_two_sides_could_swap_them_forever(plain: PlainLinks, limit: int) -> None:
    for seed in range(5):
        label, rounds = spread(plain, [1] * plain.num, limit, rounds=100, seed=seed)
        assert rounds < 50
        assert 1 < max(Counter(label).values()) <= limit


def test_two_that_have_only_each_other_come_together() -> None:
    for seed in range(10):
        assert len(set(spread(bipartite(1, 1), [1, 1], 2, rounds=50, seed=seed)[0])) == 1


def test_a_star_fills_one_label_and_leaves_the_others_alone() -> None:
    label, _ = spread(star(50), [1] * 50, 10, rounds=50)
    members = Counter(label)
    assert members[label[0]] == 10
    assert max(members.values()) == 10


@pytest.mark.parametrize("num", [0, 1, 5])
def test_a_graph_without_links_is_left_as_it_is(num: int) -> None:
    links = PlainLinks(num, {}).build()
    label, _ = propagate(links, np.ones(num, np.int64), 10)
    assert label.tolist() == list(range(num))
    assert compact_labels(label)[1] == num
    assert links.num_links == 0
    joined = coarsen(links, label, num)
    assert (joined.num_vertices, joined.num_links) == (num, 0)
    assert count_remote_reads(links, label, num).tolist() == [0] * num


def test_vertices_start_with_the_labels_they_are_given() -> None:
    """There may be more labels than vertices: three cells on two of 99 ranks. Two join the one they share most with."""
    plain = PlainLinks(3, {(0, 1): 1.0, (1, 2): 3.0})
    start = np.array([98, 98, 40], np.int32)
    label, _ = spread(plain, [1] * 3, 3, rounds=50, label=start)
    assert set(label) <= {40, 98}
    assert label[1] == label[2]
    assert start.tolist() == [98, 98, 40]


@given(st.lists(st.integers(0, 20)))
def test_compacted_labels_are_numbered_in_order(label: list[int]) -> None:
    found, count = compact_labels(np.array(label, np.int32))
    known = sorted(set(label))
    assert found.tolist() == [known.index(each) for each in label]
    assert count == len(known)


@slow_at_first
@given(plain_links(), st.data())
def test_links_between_groups_add_up(plain: PlainLinks, data: st.DataObject) -> None:
    group = data.draw(st.lists(st.integers(0, 4), min_size=plain.num, max_size=plain.num))
    joined = coarsen(plain.build(), np.array(group, np.int32), 6)
    expected = np.zeros((6, 6))
    for pair, weight in plain.between(group).items():
        expected[pair] = weight
    assert joined.num_vertices == 6
    np.testing.assert_array_equal(dense(joined), expected)
    assert not len(joined.before)


def test_links_between_groups_are_the_same_in_parts(count: int, small_parts: None) -> None:
    plain = random_links(300, 3000)
    group = np.random.default_rng(0).integers(0, 90, 300, dtype=np.int32)
    joined = coarsen(plain.build(), group, 90)
    expected = np.zeros((90, 90))
    for pair, weight in plain.between(group.tolist()).items():
        expected[pair] = weight
    np.testing.assert_array_equal(dense(joined), expected)
    assert joined.num_links > 1024  # more than one piece of memory


@slow_at_first
@given(plain_links(), st.data())
def test_a_vertex_counts_once_for_every_other_owner_that_reads_it(plain: PlainLinks, data: st.DataObject) -> None:
    owner = data.draw(st.lists(st.integers(0, 3), min_size=plain.num, max_size=plain.num))
    found = count_remote_reads(plain.build(), np.array(owner, np.int32), 4)
    assert found.tolist() == readers(plain, owner, 4)


def test_readers_are_counted_the_same_in_parts(count: int, small_parts: None) -> None:
    plain = random_links(200, 800)
    owner = np.random.default_rng(0).integers(0, 5, 200, dtype=np.int32)
    assert count_remote_reads(plain.build(), owner, 5).tolist() == readers(plain, owner.tolist(), 5)


def readers(plain: PlainLinks, owner: list[int], num_owners: int) -> list[int]:
    """By owner, how many (vertex, other owner) there are with a pair between them; rows do not count."""
    pairs = [*plain.pairs, *((b, a) for a, b in plain.pairs)]
    read = {(a, owner[b]) for a, b in pairs if owner[a] != owner[b]}
    return [sum(owner[vertex] == each for vertex, _ in read) for each in range(num_owners)]


def dense(links: Links) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    found = np.zeros((links.num_vertices, links.num_vertices))
    rows: Labels = np.repeat(np.arange(links.num_vertices, dtype=np.int32), np.diff(links.row_ptr))
    weight = np.broadcast_to(links.weight, links.col.shape)
    np.add.at(found, (rows, links.col), weight)
    return found
