from __future__ import annotations

import torch
from torch.nn.functional import silu

from strobe.protocols.pair_network import PairNetwork


def examples(width: int = 0) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return torch.randn(4, 6, 5) * 3 + 2, torch.randn(4, 3), (torch.randn(4, width), torch.randn(4, 6, width))


def test_features_are_standardized_before_the_first_layer() -> None:
    pair, src, _ = examples()
    network = PairNetwork(5, 3, hidden=8)
    network.standardize(pair, src)
    rows, ends = (pair - pair.mean((0, 1))) / pair.flatten(0, 1).std(0), (src - src.mean(0)) / src.std(0)
    hidden = silu(network.pair(rows) + network.src(ends)[:, None])
    expected = network.out(silu(network.inner(hidden))).squeeze(-1)
    torch.testing.assert_close(network(pair, src), expected)


def test_constant_features_stay_finite() -> None:
    network = PairNetwork(5, 3, hidden=8)
    network.standardize(torch.ones(4, 6, 5), torch.zeros(4, 3))
    assert network(torch.ones(4, 6, 5), torch.zeros(4, 3)).isfinite().all()


def test_a_candidate_is_scored_alone() -> None:
    pair, src, ends = examples(width=2)
    network = PairNetwork(5, 3, hidden=8, embedding_width=2)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    scores = network(pair, src, ends)
    torch.testing.assert_close(network(pair[:, order], src, (ends[0], ends[1][:, order])), scores[:, order])
    torch.testing.assert_close(network(pair[:, :2], src, (ends[0], ends[1][:, :2])), scores[:, :2])


def test_embeddings_of_both_ends_are_inputs() -> None:
    pair, src, ends = examples(width=2)
    network = PairNetwork(5, 3, hidden=8, embedding_width=2)
    for end in ends:
        end.requires_grad_()
    network(pair, src, ends).sum().backward()
    assert all(end.grad is not None and end.grad.abs().sum() > 0 for end in ends)
