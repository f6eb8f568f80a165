from __future__ import annotations

import json
import re

import pytest

from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, Nothing, Stay
from strobe.placement import Hash, LoadAware, TimeBlocks
from strobe.plan import Plan
from strobe.registry import make

MIB = 2**20


@pytest.mark.parametrize("cached", [Cached(), Cached(hops=0), Cached(hops=2, memory=0.5)], ids=str)
def test_it_survives_json(cached: Cached) -> None:
    assert make("structure", json.loads(json.dumps(cached.to_json()))) == cached


def test_what_is_kept_cannot_be_nearer_than_the_nodes_themselves() -> None:
    with pytest.raises(OptionError, match="0 products away or more, not -1"):
        Cached(hops=-1)


@pytest.mark.parametrize("memory", [0, -3.0])
def test_no_memory_at_all_is_refused(memory: float) -> None:
    with pytest.raises(OptionError, match=f"memory for what is kept must be positive, not {memory} MiB"):
        Cached(memory=memory)


def test_what_there_is_room_for_is_kept() -> None:
    Cached().check_kept(MIB, MIB, 1)
    Cached(memory=2).check_kept(2 * MIB, MIB, 1)  # who says how much may be wrong about the machine


def test_more_than_a_rank_has_room_for_is_refused_with_both_figures_and_ways_out() -> None:
    with pytest.raises(OptionError) as error:
        Cached().check_kept(3 * MIB + 1, 2 * MIB, 2)
    assert str(error.value) == (
        "the cells of a rank's nodes and what they read within 2 sparse products take 3.0 MiB, and there is room for "
        "2.0 MiB: keep less (--structure cached:hops=1), take more ranks, or let rows travel (--structure halo, with "
        "batching full or windows)"
    )


def test_more_than_was_allowed_is_refused_whatever_a_rank_has() -> None:
    with pytest.raises(
        OptionError, match=r"1 sparse product take 1.0 MiB, and there is room for 512.0 KiB.*allow more"
    ):
        Cached(memory=0.5).check_kept(MIB, 100 * MIB, 1)


def test_where_nothing_is_read_there_is_no_less_to_keep() -> None:
    with pytest.raises(OptionError, match=re.escape("room for 1.0 MiB: take more ranks, or let rows")):
        Cached().check_kept(2 * MIB, MIB, 0)


def test_a_rank_needs_whole_sequences() -> None:
    exchange = Exchange(structure=Cached(), time=Stay())
    for placement in (LoadAware(), Hash()):
        assert not Plan(placement=placement, exchange=exchange).conflicts(3)
    found = Plan(placement=TimeBlocks(), exchange=exchange).conflicts(3)
    assert {conflict.need.fact for conflict in found} == {"whole sequences"}
    assert any("placement load-aware, hash or metis, or exchange structure halo" in str(each) for each in found)
    assert "inputs at hand" in exchange.gives


def test_without_a_cache_of_their_own_ranks_keep_all_that_a_model_reads_if_it_fits() -> None:
    assert Nothing().keeps(3) == Cached().keeps(3) == Cached(hops=5).keeps(3) == 3
    assert Cached(hops=1).keeps(3) == 1
    Nothing().check_kept(MIB, MIB, 1)
    with pytest.raises(OptionError, match=r"within 1 sparse product take 2\.0 MiB, and there is room for 1\.0 MiB"):
        Nothing().check_kept(2 * MIB, MIB, 1)
