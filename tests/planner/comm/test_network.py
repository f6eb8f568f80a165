from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.errors import OptionError, StrobeError, UnknownNameError
from strobe.ops.sparse.csr import IntArray
from strobe.planner.comm.network import Network, parse_bandwidth, parse_seconds

NETWORKS = st.builds(
    lambda racks, **rest: Network(**racks, **rest),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"hosts_per_rack": st.integers(1, 5), "oversubscribed": st.floats(1, 16)}),
    ),
    bandwidth=st.floats(1e6, 1e11),
    latency_s=st.floats(0, 1e-2),
    ranks_per_host=st.integers(1, 6),
    inside=st.floats(1e6, 1e11),
    inside_latency_s=st.floats(0, 1e-2),
    all_reduce=st.sampled_from(["ring", "tree"]),
)
RANKS, BYTES = st.integers(1, 40), st.integers(0, 10**9)
# Round numbers, with which seconds can be had in one's head.
SLOW = Network(bandwidth=100.0, latency_s=1.0, inside=1000.0, inside_latency_s=0.1)


def counts(*values: int) -> IntArray:
    return np.array(values)


def at_least(longer: Any, shorter: Any) -> bool:
    return bool((np.asarray(longer) >= np.asarray(shorter) * (1 - 1e-12)).all())


@pytest.mark.parametrize(
    ("network", "num_ranks", "seconds"),
    [
        (SLOW, 1, 0.0),
        (SLOW, 4, 2 * 3 * 1.0 + 2 * 3 / 4 * 800 / 100),  # 18
        (replace(SLOW, all_reduce="tree"), 5, 2 * 3 * 1.0 + 2 * 800 / 100),  # 22
        # 2 hosts of 4 ranks: 0.6 + 1.2 inside, then 2 + 8 between them.
        (replace(SLOW, ranks_per_host=4), 8, 11.8),
        # The second host has one rank; the first one decides.
        (replace(SLOW, ranks_per_host=4), 5, 11.8),
        (replace(SLOW, ranks_per_host=4), 4, 1.8),
        # An uplink of 1 link / 4: 6 rounds, 1.5 times the bytes at 25 a second.
        (replace(SLOW, hosts_per_rack=1, oversubscribed=4.0), 4, 6 + 48),
        # One of 8 links / 4 lets the one flow that a ring sends over it pass.
        (replace(SLOW, hosts_per_rack=8, oversubscribed=4.0), 16, 2 * 15 * (1 + 800 / 16 / 100)),
    ],
)
def test_sums_take_what_one_computes_by_hand(network: Network, num_ranks: int, seconds: float) -> None:
    assert network.all_reduce_s(800, num_ranks) == pytest.approx(seconds)


def test_rows_of_hosts_with_one_rank_each_have_a_link_each() -> None:
    found = SLOW.exchange_s(counts(200, 100, 0), counts(2, 1, 0), counts(0, 300, 0))
    # Rank 1 sends 100 bytes while it receives 300; rank 2 receives nothing.
    assert found == pytest.approx([2 + 2, 1 + 3, 0])
    only_hears = SLOW.exchange_s(counts(0, 0), counts(0, 0), counts(50, 0))
    assert only_hears == pytest.approx([1.5, 0]), "waits for a message"


def test_ranks_of_a_host_share_its_link_until_they_are_done() -> None:
    # Of 3 other ranks 2 are on the other host: 2/3 of the bytes and messages go there, 1/3 stays inside.
    found = replace(SLOW, ranks_per_host=2).exchange_s(counts(300, 600, 0, 900), counts(3, 3, 0, 3))
    latency = 3 * (2 / 3 * 1.0 + 1 / 3 * 0.1)
    # 200 and 400 bytes begin together: at 400 bytes the first is done, at 600 the second. Rank 3 has a link to itself.
    assert found == pytest.approx([latency + 4, latency + 6, 0, latency + 6])


def test_a_last_host_with_fewer_ranks_sends_more_of_its_bytes_away() -> None:
    found = replace(SLOW, ranks_per_host=2, latency_s=0.0, inside_latency_s=0.0).exchange_s(
        counts(100, 100, 100), counts(1, 1, 1)
    )
    assert found == pytest.approx([1.0, 1.0, 1.0])  # 50 + 50 over one link, 100 over the other


def test_an_uplink_is_divided_among_the_hosts_of_its_rack() -> None:
    racks = replace(SLOW, hosts_per_rack=2, oversubscribed=4.0)
    # Of 4 others 3 are outside the rack of ranks 0 and 1: 75 bytes at 100 * 2 / 4 / 2 a second, rather than 100 at 100.
    # Rank 4 has its rack's uplink to itself.
    found = racks.exchange_s(np.full(5, 100), np.zeros(5, np.int64), np.zeros(5, np.int64))
    assert found == pytest.approx([3, 3, 3, 3, 2])


@given(NETWORKS, RANKS, st.integers(0, 9), BYTES)
def test_more_ranks_never_add_up_sooner(network: Network, num_ranks: int, more: int, num_bytes: int) -> None:
    assert at_least(network.all_reduce_s(num_bytes, num_ranks + more), network.all_reduce_s(num_bytes, num_ranks))


@given(NETWORKS, RANKS, BYTES, st.floats(0, 1))
def test_more_latency_never_takes_less(network: Network, num_ranks: int, num_bytes: int, more: float) -> None:
    worse = replace(network, latency_s=network.latency_s + more, inside_latency_s=network.inside_latency_s + more)
    assert at_least(worse.all_reduce_s(num_bytes, num_ranks), network.all_reduce_s(num_bytes, num_ranks))
    sent, messages = np.full(num_ranks, num_bytes), np.arange(num_ranks)
    assert at_least(worse.exchange_s(sent, messages), network.exchange_s(sent, messages))


@given(NETWORKS, BYTES)
def test_one_rank_takes_no_time(network: Network, num_bytes: int) -> None:
    assert network.all_reduce_s(num_bytes, 1) == 0
    assert network.exchange_s(counts(num_bytes), counts(3)).tolist() == [0.0]
    assert network.exchange_s(counts(), counts()).tolist() == []


@given(NETWORKS, BYTES, st.integers(1, 6))
def test_one_host_never_uses_its_link(network: Network, num_bytes: int, num_ranks: int) -> None:
    host = replace(network, ranks_per_host=6)
    better = replace(host, bandwidth=network.bandwidth * 3, latency_s=0.0)
    assert host.all_reduce_s(num_bytes, num_ranks) == better.all_reduce_s(num_bytes, num_ranks)
    sent, messages = np.full(num_ranks, num_bytes), np.arange(num_ranks)
    assert host.exchange_s(sent, messages).tolist() == better.exchange_s(sent, messages).tolist()


@given(NETWORKS, st.integers(1, 12), st.integers(1, 6), BYTES)
def test_hosts_with_several_ranks_are_not_faster_than_with_one(
    network: Network, num_hosts: int, per_host: int, num_bytes: int
) -> None:
    alone, shared = replace(network, ranks_per_host=1), replace(network, ranks_per_host=per_host)
    assert at_least(shared.all_reduce_s(num_bytes, num_hosts * per_host), alone.all_reduce_s(num_bytes, num_hosts))
    if num_hosts > 1:
        num_ranks = num_hosts * per_host
        sent, messages = np.full(num_ranks, num_bytes), np.zeros(num_ranks, np.int64)
        free: dict[str, Any] = {"latency_s": 0.0, "inside_latency_s": 0.0, "hosts_per_rack": None, "oversubscribed": 1}
        apart = replace(alone, **free).exchange_s(sent, messages)
        assert at_least(replace(shared, **free).exchange_s(sent, messages), apart)


@given(NETWORKS, st.lists(st.tuples(BYTES, st.integers(0, 9), BYTES), min_size=1, max_size=30), st.data())
def test_more_bytes_never_shorten_an_exchange(
    network: Network, rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    sent, messages, received = (np.array(column) for column in zip(*rows, strict=True))
    before = network.exchange_s(sent, messages, received)
    at = data.draw(st.integers(0, len(rows) - 1))
    sent[at] += data.draw(BYTES)
    after = network.exchange_s(sent, messages, received)
    assert at_least(after, before)
    assert np.isfinite(after).all()


@given(NETWORKS, st.lists(st.tuples(BYTES, st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 5))
def test_uplinks_as_wide_as_all_links_are_not_in_the_way(
    network: Network, rows: list[tuple[int, int]], hosts_per_rack: int
) -> None:
    switch = replace(network, hosts_per_rack=None, oversubscribed=1.0)
    racks = replace(switch, hosts_per_rack=hosts_per_rack)
    narrow = replace(racks, oversubscribed=3.0)
    sent, messages = (np.array(column) for column in zip(*rows, strict=True))
    assert racks.exchange_s(sent, messages) == pytest.approx(switch.exchange_s(sent, messages))
    assert racks.all_reduce_s(sent[0], len(rows)) == switch.all_reduce_s(sent[0], len(rows))
    assert at_least(narrow.exchange_s(sent, messages), racks.exchange_s(sent, messages))
    assert at_least(narrow.all_reduce_s(sent[0], len(rows)), racks.all_reduce_s(sent[0], len(rows)))


def test_a_tree_beats_a_ring_where_latency_is_all() -> None:
    ring, tree = Network(), Network(all_reduce="tree")
    assert ring.all_reduce_s(0, 1024) == pytest.approx(2 * 1023 * 30e-6)
    assert tree.all_reduce_s(0, 1024) == pytest.approx(2 * 10 * 30e-6)
    assert tree.all_reduce_s(1e9, 4) > ring.all_reduce_s(1e9, 4)  # and a ring sends fewer bytes


def test_what_cannot_be_counted_is_refused() -> None:
    for num_bytes, num_ranks in ((-1, 2), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            SLOW.all_reduce_s(num_bytes, num_ranks)
    for rows in ((counts(1, 2), counts(1)), (counts(-1, 2), counts(1, 1)), (counts(1, 2), counts(1, 1), counts(1))):
        with pytest.raises(ValueError, match="per rank"):
            SLOW.exchange_s(*rows)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("bandwidth", 0.0, "above 0 bytes a second, not 0.0"),
        ("inside", -1.0, "above 0"),
        ("latency_s", -1e-6, "0 seconds or more"),
        ("inside_latency_s", float("nan"), "must be a number"),
        ("ranks_per_host", 0, "at least 1, not 0"),
        ("ranks_per_host", 1.5, "a whole number"),
        ("hosts_per_rack", 0, "at least 1"),
        ("oversubscribed", 0.5, "at least 1"),
        ("oversubscribed", 4.0, "hosts_per_rack"),
        ("all_reduce", "star", "ring or tree"),
    ],
)
def test_impossible_networks_are_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Network(**{field: value})


@given(NETWORKS)
def test_networks_survive_json(network: Network) -> None:
    assert Network.from_json(json.loads(json.dumps(network.to_json()))) == network


def test_json_with_a_field_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'bandwidth'"):
        Network.from_json({"bandwith": 1.0})


def test_names_bandwidths_and_options_are_read() -> None:
    assert Network.parse("10gbit") == Network()
    assert Network.parse(" 1Gbit ") == Network(bandwidth=0.125e9, latency_s=50e-6)
    assert Network.parse("25gbit").bandwidth == 3.125e9
    assert Network.parse("100gbit").latency_s < Network.parse("25gbit").latency_s
    assert Network.parse("2.5GB") == Network(bandwidth=2.5e9)
    text = "25gbit:latency=10us, ranks_per_host=8,inside=20GB,inside_latency=2us,hosts_per_rack=16,oversubscribed=4,"
    inside: dict[str, Any] = {"ranks_per_host": 8, "inside": 20e9, "inside_latency_s": 2e-6}
    racks: dict[str, Any] = {"hosts_per_rack": 16, "oversubscribed": 4.0, "all_reduce": "tree"}
    found = Network.parse(text + "all_reduce=tree")
    assert found == Network(bandwidth=3.125e9, latency_s=10e-6, **inside, **racks)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "named networks are 1gbit, 10gbit"),
        ("fast", "'fast' is not a bandwidth.*10Gbit.*named networks"),
        ("10", "a number and a unit"),
        ("0Gbit", "above 0"),
        ("10gbit:latncy=1us", "did you mean 'latency'"),
        ("10gbit:latency=50", "latency of a network: '50' is not a duration.*50us"),
        ("10gbit:latency", "latency of a network: '' is not a duration"),
        ("10gbit:inside=fast", "inside of a network: 'fast' is not a bandwidth"),
        ("10gbit:ranks_per_host=two", "cannot be 'two': write ranks_per_host=8"),
        ("10gbit:oversubscribed=nan,hosts_per_rack=2", "must be a number"),
        ("10gbit:all_reduce=star", "ring or tree"),
    ],
)
def test_what_a_network_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(StrobeError, match=message):
        Network.parse(text)


@pytest.mark.parametrize(
    ("text", "bytes_a_second"),
    [
        ("10Gbit", 1.25e9),
        ("10 gbit/s", 1.25e9),
        ("10Gbps", 1.25e9),
        ("1GBps", 1e9),
        ("1.25GB", 1.25e9),
        ("1.25gB/s", 1.25e9),
        ("800MB", 8e8),
        ("512MiB", 2.0**29),
        ("64kbit", 8e3),
        ("1e3B", 1e3),
        ("8bit", 1.0),
    ],
)
def test_bandwidths_are_read(text: str, bytes_a_second: float) -> None:
    assert parse_bandwidth(text) == bytes_a_second


@pytest.mark.parametrize(("text", "seconds"), [("50us", 50e-6), ("50 µs", 50e-6), ("0.5ms", 5e-4), ("1s", 1.0)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


def test_bits_and_bytes_are_not_guessed() -> None:
    with pytest.raises(OptionError, match="may be bits or bytes: write 10Gbit or 10GB"):
        parse_bandwidth("10gb")
    for text in ("-1GB", "GB", "10 parsec", "10Gbit/h"):
        with pytest.raises(OptionError, match="is not a bandwidth"):
            parse_bandwidth(text)
    for text in ("50", "us", "-1ms", "5m"):
        with pytest.raises(OptionError, match="us, ms or s"):
            parse_seconds(text)


def test_str_names_bandwidth_hosts_and_racks() -> None:
    assert str(Network()) == "10 Gbit/s, 30 µs, all-reduce in a ring"
    told = str(Network.parse("10gbit:ranks_per_host=8,hosts_per_rack=16,oversubscribed=4"))
    assert told.endswith("8 ranks a host (40 Gbit/s inside), 16 hosts a rack (oversubscribed 4 times)")
