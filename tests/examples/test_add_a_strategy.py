from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from strobe.placement.loads import loads_of_nodes, loads_of_ranks
from tests.support.graphs import AWKWARD
from tests.support.placement_cases import communities, owned

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "add_a_strategy.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.usefixtures("ranks_are_threads")
def test_custom_placement_trains_two_ranks_like_one(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    losses = example["main"](nodes=40, epochs=2)
    shown = capsys.readouterr().out
    assert list(losses) == [1, 2]
    assert losses[2] == pytest.approx(losses[1], rel=1e-9)
    assert "placement snake-order" in shown
    assert "halo" in shown.partition("sent in an epoch")[2]
    assert f"{losses[2]:.9f} on 2" in shown


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("name", AWKWARD)
def test_custom_placement_keeps_the_placement_contract(example: dict[str, Any], name: str, back: bool) -> None:
    graph = AWKWARD[name].build()
    for num_ranks in (1, 2, 10):
        partition = example["SnakeOrder"](back=back).place(graph, [], num_ranks)
        owner_of = owned(graph, partition)
        assert set(owner_of.values()) <= set(range(num_ranks))
        assert partition.whole_sequences
        assert len({(v, owner) for (_, v), owner in owner_of.items()}) == len({v for _, v in owner_of})


def test_heavy_nodes_are_spread_over_ranks(example: dict[str, Any]) -> None:
    graph = communities([12, 5, 3], num_snapshots=2)  # by id, one of two ranks would have all of the largest
    partition = example["SnakeOrder"]().place(graph, [], 2)
    assert partition.node_owner[:12].sum() == 6
    loads = loads_of_ranks(graph, partition, [range(len(graph))])
    assert loads.max() - loads.min() <= loads_of_nodes(graph).max()
