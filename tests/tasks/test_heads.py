from __future__ import annotations

import pytest
import torch

from strobe.tasks import heads
from strobe.tasks.heads import PairDecoder


def scores(head: PairDecoder, s: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Scores of pairs with given embeddings."""
    number = torch.arange(len(s))
    result: torch.Tensor = head(torch.cat([s, d]), number, number + len(s))
    return result


def trained(*, directed: bool) -> PairDecoder:
    """A decoder with weights other than 0."""
    torch.manual_seed(0)
    head = PairDecoder(4, directed=directed)
    torch.nn.init.normal_(head.score.weight)
    return head


def test_untrained_decoder_predicts_0_and_has_gradients() -> None:
    head, s, d = PairDecoder(4, directed=True), torch.randn(5, 4), torch.randn(5, 4)
    assert scores(head, s, d).tolist() == [0.0] * 5
    scores(head, s, d).sum().backward()
    assert head.score.weight.grad is not None
    assert bool((head.score.weight.grad != 0).any())


@pytest.mark.parametrize("directed", [True, False])
def test_only_directed_scores_depend_on_the_order(directed: bool) -> None:
    head, s, d = trained(directed=directed), torch.randn(5, 4), torch.randn(5, 4)
    assert bool((scores(head, s, d) != 0).any())
    assert torch.allclose(scores(head, s, d), scores(head, d, s)) != directed


@pytest.mark.parametrize("number", [0, 1, 7, 9])
def test_chunked_scores_are_equal(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head, s, d = trained(directed=True), torch.randn(number, 4), torch.randn(number, 4)
    whole = scores(head, s, d)
    monkeypatch.setattr(heads, "PAIRS_PER_CHUNK", 3)
    with torch.no_grad():
        chunked = scores(head, s, d)
    assert chunked.shape == (number,)
    torch.testing.assert_close(chunked, whole)
