from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strobe.batching import BatchSpec
from strobe.batching.subgraph_sampler import BatchSize, SubgraphSampler, sample_batch
from strobe.ops.sparse.csr import IntArray


def values(batch: BatchSpec) -> tuple[range, range, list[int], int, bool]:
    return batch.times, batch.target_times, targets_of(batch), batch.hops, batch.continues_state


def targets_of(batch: BatchSpec) -> list[int]:
    assert batch.seed_nodes is not None
    found: list[int] = batch.seed_nodes.tolist()
    return found


def in_groups(nodes: IntArray, number: int) -> list[IntArray]:
    """Nodes in groups of about as many, one here, one there."""
    return [nodes[first::number] for first in range(number)]


node_sets = st.lists(st.integers(0, 500), unique=True, max_size=40).map(lambda nodes: np.array(sorted(nodes), np.int64))


@given(
    nodes=node_sets,
    number=st.integers(1, 6),
    first=st.integers(0, 5),
    length=st.integers(0, 9),
    snapshots=st.integers(0, 9),
    wanted=st.integers(0, 50),
    seed=st.integers(0, 1000),
)
def test_batch_has_its_size_within_training_snapshots_and_nodes(
    nodes: IntArray, number: int, first: int, length: int, snapshots: int, wanted: int, seed: int
) -> None:
    times, groups = range(first, first + length), in_groups(nodes, number)
    batch = sample_batch(times, groups, BatchSize(snapshots, wanted), 3, (seed, 1))
    assert len(batch.times) == min(snapshots, length)
    assert set(batch.times) <= set(times)
    assert batch.times.step == 1
    assert batch.target_times == batch.times
    targets = targets_of(batch)
    assert targets == sorted(set(targets))
    assert set(targets) <= set(nodes.tolist())
    assert len(targets) == min(wanted, len(nodes))
    assert batch.seed_nodes is not None
    assert batch.seed_nodes.dtype == np.int64
    assert (batch.hops, batch.continues_state) == (3, False)
    for group in groups:
        share = len(group) * len(targets) / max(len(nodes), 1)
        assert abs(len(set(group.tolist()) & set(targets)) - share) < 1, "the same share of every group"


def test_batches_of_a_seed_differ() -> None:
    groups = [np.arange(1000)]
    batches = {str(values(sample_batch(range(50), groups, BatchSize(5, 20), 1, (7, number)))) for number in range(100)}
    assert len(batches) == 100


@pytest.mark.parametrize("snapshots", [1, 2, 4, 5])
def test_first_snapshot_is_uniform(snapshots: int) -> None:
    starts = {
        sample_batch(range(10, 15), [np.arange(3)], BatchSize(snapshots, 1), 1, (seed,)).times.start
        for seed in range(200)
    }
    assert starts == set(range(10, 16 - snapshots))


def test_nodes_are_sampled_uniformly() -> None:
    groups = [np.arange(0, 11), np.arange(11, 22), np.arange(22, 32)]  # 11, 11, 10
    num_draws, counts = 2000, np.zeros(32)
    for seed in range(num_draws):
        counts[sample_batch(range(1), groups, BatchSize(1, 8), 1, (seed,)).seed_nodes] += 1
    expected = num_draws * 8 / 32  # 500, with a deviation of 19
    assert counts.min() > expected - 6 * 19
    assert counts.max() < expected + 6 * 19


def test_remainders_go_to_random_strata() -> None:
    groups = [np.arange(first, first + 10) for first in (0, 10, 20)]
    sizes = BatchSize(1, 4)
    more = {
        tuple(np.bincount(sample_batch(range(1), groups, sizes, 1, (s,)).seed_nodes // 10))  # type: ignore[operator]
        for s in range(50)
    }
    assert more == {(2, 1, 1), (1, 2, 1), (1, 1, 2)}


def test_sizes_are_shares_up_to_1_and_counts_above_and_equal_ones_are_one_candidate() -> None:
    drawing = SubgraphSampler(snapshots=(0.1, 0.5, 1), nodes=(0.05, 12, 5000))
    assert drawing.sizes(20, 300) == [BatchSize(a, b) for a in (2, 10, 20) for b in (15, 12, 300)]
    assert str(BatchSize(3, 1200)) == "1,200 nodes in 3 snapshots"
    assert SubgraphSampler(snapshots=(0.1, 0.2), nodes=(0.02, 0.05)).sizes(5, 10) == [BatchSize(1, 1)]
    dynahb = SubgraphSampler(snapshots=(0.5, 1.0), nodes=(0.005, 0.01, 0.02, 0.05), size_policy="learned", min_nodes=64)
    assert dynahb.sizes(10, 300) == [BatchSize(5, 64), BatchSize(10, 64)]
    assert dynahb.candidates(10, 300) == [0, 4]
    assert len(dynahb.sizes(10, 100_000)) == 8


def test_all_ranks_use_the_candidates_of_rank_0() -> None:
    drawing = SubgraphSampler(snapshots=(0.1, 0.2), nodes=(0.02, 0.05), size_policy="random")
    candidates = drawing.candidates(5, 100)
    assert drawing.sizes(5, 100, candidates) == [BatchSize(1, 2), BatchSize(1, 5)]
    assert drawing.sizes(5, 10, candidates) == [BatchSize(1, 1)] * 2
    assert len(drawing.capacities(5, 10, candidates)) == 2


def test_epoch_of_median_batches_has_as_many_cells_as_the_rank() -> None:
    drawing = SubgraphSampler(snapshots=(0.1, 0.2, 0.4), nodes=(0.02, 0.05, 0.1), size_policy="learned")
    # 10 snapshots of 100 nodes: batches of 2, 5, 10, 4, 10, 20, 8, 20 and 40 cells, 10 in the middle
    assert drawing.num_steps(10, 100) == 1000 / 10
    assert SubgraphSampler(snapshots=(0.5,), nodes=(0.5,)).num_steps(10, 100) == 4
    assert SubgraphSampler(snapshots=(1.0,), nodes=(1.0,)).num_steps(10, 100) == 1
    assert SubgraphSampler(snapshots=(3,), nodes=(1.0,)).num_steps(10, 100) == 3, "10 / 3, rounded"
    assert replace(drawing, steps_per_epoch=7).num_steps(10, 100) == 7


def test_capacities_cover_as_many_cells_as_the_rank() -> None:
    drawing = SubgraphSampler(snapshots=(0.2, 0.4), nodes=(0.05, 0.1), size_policy="random")
    # 1,000 cells for 4 sizes: 250 each, in batches of 10, 20, 20 and 40 cells
    assert drawing.capacities(10, 100) == [25, 12, 12, 6]
    assert SubgraphSampler(snapshots=(0.2,), nodes=(0.05,)).capacities(10, 100) == [100]
    assert SubgraphSampler(snapshots=(1.0,), nodes=(1.0,)).capacities(10, 100) == [1]
    assert SubgraphSampler(snapshots=(1.0, 0.5), nodes=(1.0,)).capacities(10, 100) == [1, 1], "half a batch is one"
