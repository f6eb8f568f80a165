from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from strobe.errors import OptionError
from strobe.protocols.events import EventStream, Ids
from strobe.protocols.pair_model import EndEmbeddings, PairModel, PairNetwork, PairSettings
from strobe.protocols.ranking import rank_events, reciprocal_mean
from strobe.protocols.tgb import score_baseline
from tests.support.event_streams import random_stream, with_changed_tail

SETTINGS = PairSettings(hidden=16, epochs=3, examples=32, candidates=6)


def alternating(num_events: int = 1200, num_src: int = 6, num_dst: int = 20) -> EventStream:
    """Every source goes back and forth between two destinations of its own: never to the one it met last."""
    src = np.arange(num_events) % num_src
    turn = np.arange(num_events) // num_src % 2
    return EventStream(
        src=src,
        dst=3 * src + turn,
        time=np.arange(num_events, dtype=np.float64),
        num_src=num_src,
        num_dst=num_dst,
        train_end=num_events // 2,
        validation_end=3 * num_events // 4,
        batch_size=num_src,
    )


def mrr(stream: EventStream, scores: Iterable[tuple[int, Any]]) -> float:
    return reciprocal_mean(np.concatenate([rank_events(stream, first, batch) for first, batch in scores]))


def test_a_model_learns_what_no_baseline_knows() -> None:
    stream = alternating()
    model = PairModel(stream, PairSettings(hidden=16, epochs=6, examples=16, candidates=12)).fit()
    assert mrr(stream, score_baseline(stream, "most-recent-first", "test")) == pytest.approx(0.5)
    assert mrr(stream, model.score("test")) > 0.99


def test_a_model_has_the_weights_of_its_best_epoch() -> None:
    model = PairModel(random_stream(0, num_events=400), SETTINGS).fit()
    assert len(model.history) == 3
    assert model.best_epoch == 1 + int(np.argmax(model.history))
    assert model.validate() == max(model.history)


def test_equal_seeds_give_equal_models_and_leave_the_global_generator() -> None:
    stream, state = random_stream(0, num_events=400), torch.random.get_rng_state()
    first, again, other = (PairModel(stream, SETTINGS, seed=seed).fit() for seed in (1, 1, 2))
    assert first.history == again.history
    assert first.history != other.history
    assert torch.equal(torch.random.get_rng_state(), state)


def test_events_from_a_batch_on_change_neither_its_scores_nor_weights() -> None:
    stream = random_stream(0, num_events=400)
    batches = list(stream.batches("test"))
    model = PairModel(stream, SETTINGS).fit()
    before = dict(model.score("test"))
    for number in range(0, len(batches) - 1, 4):
        first, end = batches[number]
        stream_after = with_changed_tail(stream, end)
        # the scored batch keeps the sources and times that are asked for, its destinations change
        stream_after.dst[first:end] = (stream_after.dst[first:end] + 1) % stream.num_dst
        changed = PairModel(stream_after, SETTINGS).fit()
        assert changed.history == model.history
        after = dict(changed.score("test"))
        assert all(np.array_equal(before[each], after[each]) for each, _ in batches[: number + 1])


def test_validation_events_change_no_weights_of_an_epoch() -> None:
    stream = random_stream(0, num_events=400)
    settings = PairSettings(hidden=16, epochs=1, examples=32, candidates=6)
    changed = with_changed_tail(stream, stream.train_end)
    states = [PairModel(each, settings).fit().network.state_dict() for each in (stream, changed)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_progress_counts_every_step() -> None:
    calls: list[tuple[int, int]] = []
    stream = random_stream(0, num_events=400)
    PairModel(stream, SETTINGS, on_progress=lambda done, total: calls.append((done, total))).fit()
    assert [done for done, _ in calls] == list(range(1, calls[-1][1] + 1))


def test_a_training_part_without_events_is_refused() -> None:
    with pytest.raises(OptionError, match="warm-up"):
        PairModel(random_stream(0), PairSettings(warm_up=1.0)).fit()


class Table(EndEmbeddings):
    """Embeddings of ends, trained with the network."""

    def __init__(self, stream: EventStream, width: int) -> None:
        super().__init__()
        self.stream, self.width = stream, width
        self.src, self.dst = nn.Embedding(stream.num_src, width), nn.Embedding(stream.num_dst, width)

    def lookup(self, events: Ids, candidates: Ids) -> tuple[Tensor, Tensor]:
        return self.src(torch.from_numpy(self.stream.src[events])), self.dst(torch.from_numpy(candidates))


def test_embeddings_of_ends_are_trained_and_restored() -> None:
    stream = random_stream(0, num_events=400)
    torch.manual_seed(0)
    table = Table(stream, 3)
    start = {name: value.clone() for name, value in table.state_dict().items()}
    model = PairModel(stream, SETTINGS, embeddings=table).fit()
    assert all(not torch.equal(start[name], value) for name, value in table.state_dict().items())
    assert model.validate() == max(model.history)


def network_inputs(width: int = 0) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return torch.randn(4, 6, 5) * 3 + 2, torch.randn(4, 3), (torch.randn(4, width), torch.randn(4, 6, width))


def test_features_are_standardized_before_the_first_layer() -> None:
    pair, src, _ = network_inputs()
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
    pair, src, ends = network_inputs(width=2)
    network = PairNetwork(5, 3, hidden=8, embedding_width=2)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    scores = network(pair, src, ends)
    torch.testing.assert_close(network(pair[:, order], src, (ends[0], ends[1][:, order])), scores[:, order])
    torch.testing.assert_close(network(pair[:, :2], src, (ends[0], ends[1][:, :2])), scores[:, :2])


def test_embeddings_of_both_ends_are_inputs() -> None:
    pair, src, ends = network_inputs(width=2)
    network = PairNetwork(5, 3, hidden=8, embedding_width=2)
    for end in ends:
        end.requires_grad_()
    network(pair, src, ends).sum().backward()
    assert all(end.grad is not None and end.grad.abs().sum() > 0 for end in ends)
