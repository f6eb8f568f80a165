from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strobe.tasks import heads
from strobe.tasks.heads import PairDecoder

NODE, PAIR = 3, 2
"""Features of each end and of a pair."""


def scores(head: PairDecoder, s: Tensor, d: Tensor, features: Tensor | None = None) -> Tensor:
    """Scores of pairs with given embeddings."""
    number = torch.arange(len(s))
    result: Tensor = head(torch.cat([s, d]), number, number + len(s), *(() if features is None else (features,)))
    return result


def trained(node_features: int = NODE, pair_features: int = PAIR) -> PairDecoder:
    """A decoder with weights other than 0."""
    torch.manual_seed(0)
    head = PairDecoder(4, node_features, pair_features)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head.double()


def pairs(number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of both ends and features; every second pair has no history."""
    features = torch.randn(number, 2 * NODE + PAIR, dtype=torch.float64)
    features[::2, 2 * NODE :] = 0
    return torch.randn(number, 4, dtype=torch.float64), torch.randn(number, 4, dtype=torch.float64), features


@pytest.mark.parametrize("sizes", [(0, 0), (NODE, PAIR)])
def test_untrained_decoder_predicts_0_and_has_gradients(sizes: tuple[int, int]) -> None:
    head = PairDecoder(4, *sizes).double()
    s, d, features = pairs(6)
    found = scores(head, s, d, features if sum(sizes) else None)
    assert found.tolist() == [0.0] * 6
    found.sum().backward()
    last = [] if head.pair is None else [head.pair[1]]
    for layer in (head.key, head.source_score, head.destination_score, *last):
        weight = layer.weight
        assert isinstance(weight, Tensor)
        assert weight.grad is not None
        assert bool((weight.grad != 0).any())


def test_scores_are_those_of_the_formula() -> None:
    head = trained()
    s, d, features = pairs(6)
    found = scores(head, s, d, features)
    for k in range(6):
        of_source, of_destination, of_pair = features[k].split([NODE, NODE, PAIR])
        source = head.source(torch.cat([s[k], of_source]))
        destination = head.destination(torch.cat([d[k], of_destination]))
        expected = head.query(source) @ head.key(destination) / 8  # the root of 64 columns
        expected = expected + head.source_score(source) + head.destination_score(destination)
        if k % 2:
            assert head.pair is not None
            expected = expected + head.pair(torch.cat([of_pair, source, destination]))
        torch.testing.assert_close(found[k], expected.squeeze())


def test_sources_and_destinations_are_not_the_same() -> None:
    s, d, _ = pairs(5)
    head = trained(0, 0)
    assert not torch.allclose(scores(head, s, d), scores(head, d, s))


@pytest.mark.parametrize("number", [0, 1, 7, 9])
@pytest.mark.parametrize("sizes", [(0, 0), (NODE, PAIR)])
def test_chunked_scores_are_equal(number: int, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    head = trained(*sizes)
    s, d, known = pairs(number)
    features = known if sum(sizes) else None
    whole = scores(head, s, d, features)
    monkeypatch.setattr(heads, "PAIRS_PER_CHUNK", 3)
    with torch.no_grad():
        chunked = scores(head, s, d, features)
    assert chunked.shape == (number,)
    torch.testing.assert_close(chunked, whole)
