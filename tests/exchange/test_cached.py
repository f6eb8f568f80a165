from __future__ import annotations

import json

import pytest

from strobe.errors import OptionError
from strobe.exchange import Cached, Exchange, NoExchange, NoTimeExchange
from strobe.placement import Hash, LoadAware, TimeBlocks
from strobe.plan import Plan
from strobe.registry import make_strategy

MIB = 2**20


@pytest.mark.parametrize("cached", [Cached(), Cached(hops=0), Cached(hops=2, memory=0.5)], ids=str)
def test_cached_survives_json(cached: Cached) -> None:
    assert make_strategy("structure", json.loads(json.dumps(cached.to_json()))) == cached


def test_negative_hops_are_refused() -> None:
    with pytest.raises(OptionError, match="hops of cached must be at least 0, not -1"):
        Cached(hops=-1)


@pytest.mark.parametrize("memory", [0, -3.0])
def test_memory_must_be_positive(memory: float) -> None:
    with pytest.raises(OptionError, match=f"memory of cached must be positive, not {memory} MiB"):
        Cached(memory=memory)


def test_cache_that_fits_is_accepted() -> None:
    Cached().check_cache_size(MIB, MIB, 1)
    Cached(memory=2).check_cache_size(2 * MIB, MIB, 1)  # the option overrides the free memory


def test_cache_larger_than_free_memory_is_refused_with_sizes_and_fixes() -> None:
    with pytest.raises(OptionError, match=r"2 hops.* 3\.0 MiB.* 2\.0 MiB.*cached:hops=1.*more ranks.*halo"):
        Cached().check_cache_size(3 * MIB + 1, 2 * MIB, 2)


def test_cache_larger_than_the_memory_option_is_refused() -> None:
    with pytest.raises(OptionError, match=r"1 hop.* 1\.0 MiB.* 512\.0 KiB.*raise memory"):
        Cached(memory=0.5).check_cache_size(MIB, 100 * MIB, 1)


def test_fewer_hops_are_not_proposed_at_0_hops() -> None:
    with pytest.raises(OptionError, match="are free: use more ranks, or exchange rows"):
        Cached().check_cache_size(2 * MIB, MIB, 0)


def test_cached_needs_whole_sequences() -> None:
    exchange = Exchange(structure=Cached(), time=NoTimeExchange())
    for placement in (LoadAware(), Hash()):
        assert not Plan(placement=placement, exchange=exchange).conflicts(3)
    conflicts = Plan(placement=TimeBlocks(), exchange=exchange).conflicts(3)
    assert {conflict.need.fact for conflict in conflicts} == {"whole sequences"}
    assert any("placement load-aware" in str(conflict) for conflict in conflicts)
    assert "local inputs" in exchange.gives


def test_other_exchanges_cache_all_hops_of_the_model_if_they_fit() -> None:
    assert NoExchange().cache_hops(3) == Cached().cache_hops(3) == Cached(hops=5).cache_hops(3) == 3
    assert Cached(hops=1).cache_hops(3) == 1
    NoExchange().check_cache_size(MIB, MIB, 1)
    with pytest.raises(OptionError, match=r"1 hop.* 2\.0 MiB.* 1\.0 MiB"):
        NoExchange().check_cache_size(2 * MIB, MIB, 1)
