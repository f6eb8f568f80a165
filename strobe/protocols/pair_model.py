"""A small network that scores candidates of an event, and its training and scoring on a stream of events."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from strobe.errors import OptionError
from strobe.protocols.events import EventStream, Ids
from strobe.protocols.pair_features import PAIR_FEATURES, SRC_FEATURES, PairExamples, PairFeatures
from strobe.protocols.ranking import rank_events, reciprocal_mean

_LEAST_SCALE = 1e-3
"""Least deviation by which a feature is divided; constant features stay near 0."""


class EndEmbeddings(nn.Module, ABC):
    """Embeddings of sources and destinations, such as those of a snapshot model, as further inputs of a network.

    An implementation returns for an event only what is known before the event's batch. Its parameters, if any, are
    trained with the network.

    Attributes:
        width: columns of the embeddings.
    """

    width: int

    @abstractmethod
    def lookup(self, events: Ids, candidates: Ids) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the events' sources, [n, width], and of their candidates, [n, C, width].

        Args:
            events: numbers of events of the stream, [n].
            candidates: destinations, [n, C].
        """


class PairNetwork(nn.Module):
    """A multilayer perceptron over every candidate of an event.

    The features of the source are the same for all candidates: their part of the first layer is computed once per
    event. Embeddings of the ends enter the first layer, and so does their Hadamard product.

    Args:
        num_pair: features of a pair.
        num_src: features of a source.
        hidden: width of both hidden layers.
        embedding_width: columns of embeddings of the ends, 0 for none.
    """

    mean: Tensor
    scale: Tensor
    src_mean: Tensor
    src_scale: Tensor

    def __init__(self, num_pair: int, num_src: int, hidden: int, embedding_width: int = 0) -> None:
        super().__init__()
        self.pair, self.src = nn.Linear(num_pair, hidden), nn.Linear(num_src, hidden, bias=False)
        self.src_end = nn.Linear(embedding_width, hidden, bias=False) if embedding_width else None
        self.dst_end = nn.Linear(2 * embedding_width, hidden, bias=False) if embedding_width else None
        self.inner, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        for prefix, width in (("", num_pair), ("src_", num_src)):
            self.register_buffer(f"{prefix}mean", torch.zeros(width))
            self.register_buffer(f"{prefix}scale", torch.ones(width))

    def standardize(self, pair: Tensor, src: Tensor) -> None:
        """Take mean and deviation of every feature from examples, [n, C, num_pair] and [n, num_src]."""
        rows = pair.flatten(0, 1)
        self.mean, self.scale = rows.mean(0), rows.std(0).clamp_min(_LEAST_SCALE)
        self.src_mean, self.src_scale = src.mean(0), src.std(0).clamp_min(_LEAST_SCALE)

    def forward(self, pair: Tensor, src: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Score candidates, [n, C].

        Args:
            pair: features of pairs, [n, C, num_pair].
            src: features of sources, [n, num_src].
            ends: embeddings of sources, [n, width], and of candidates, [n, C, width].
        """
        # (x - mean) / scale, folded into the layer: no copy of the features
        weight = self.pair.weight / self.scale
        shared = self.src((src - self.src_mean) / self.src_scale) + self.pair.bias - weight @ self.mean
        if self.src_end is not None and self.dst_end is not None:
            assert ends is not None, "the network was made for embeddings of both ends"
            source, candidates = ends
            shared = shared + self.src_end(source)
            hidden = pair @ weight.T + self.dst_end(torch.cat([candidates, candidates * source[:, None]], dim=-1))
        else:
            hidden = pair @ weight.T
        hidden = silu(hidden + shared[:, None])
        scores: Tensor = self.out(silu(self.inner(hidden))).squeeze(-1)
        return scores


OnEpoch = Callable[[int, int], None]
"""Called with (steps done, steps in all) while events are described, and a network is trained and validated."""

_SCORED_AT_ONCE = 16
"""Events that are scored at once: with 1,000 candidates, hidden rows stay in the cache (twice as fast as 200)."""
_STANDARDIZED = 4096
"""PairExamples from which means and deviations of features are taken."""


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    """Settings of a pair network, chosen on validation parts.

    Attributes:
        hidden: width of both hidden layers.
        epochs: passes over the training part; the best one in validation is taken.
        examples: events per step.
        candidates: destinations per event of the training part, one of them the true one.
        lr: peak of the learning rate (one cycle over all epochs).
        weight_decay: of AdamW.
        warm_up: share of the training part that only fills the memory.
    """

    hidden: int = 64
    epochs: int = 3
    examples: int = 256
    candidates: int = 40
    lr: float = 1e-2
    weight_decay: float = 1e-4
    warm_up: float = 0.3


class PairModel:
    """A network trained on the training part of a stream, with the weights of its best epoch.

    Attributes:
        network: the network.
        best_epoch: epoch of its weights, from 1.
        history: validation MRR after every epoch.
    """

    def __init__(
        self,
        stream: EventStream,
        settings: PairSettings,
        *,
        seed: int = 0,
        device: str | None = None,
        embeddings: EndEmbeddings | None = None,
        on_progress: OnEpoch | None = None,
    ) -> None:
        self._stream, self._settings, self._seed = stream, settings, seed
        self._device = torch.device(device or "cpu")
        self._embeddings = embeddings
        self._report = on_progress or (lambda done, total: None)
        self.history: list[float] = []
        self.best_epoch = 0
        width = 0 if embeddings is None else embeddings.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = PairNetwork(len(PAIR_FEATURES), len(SRC_FEATURES), settings.hidden, width)
        self.network = network.to(self._device)
        self._modules = torch.nn.ModuleList([self.network] if embeddings is None else [self.network, embeddings])

    def fit(self) -> PairModel:
        """Train; afterwards the network has the weights of the epoch with the best validation MRR."""
        settings, train_end = self._settings, self._stream.train_end
        events = np.arange(int(settings.warm_up * train_end), train_end)
        steps = -(-len(events) // settings.examples)
        report = self._count_steps(
            self._num_batches("train") + settings.epochs * (steps + self._num_batches("validation"))
        )
        train = self._describe_training(events, report)
        optimizer = torch.optim.AdamW(self._modules.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.lr, total_steps=settings.epochs * steps)
        order = torch.Generator().manual_seed(self._seed)
        best: dict[str, Tensor] = {}
        for _ in range(settings.epochs):
            self._modules.train()
            for rows in torch.randperm(len(events), generator=order).split(settings.examples):
                optimizer.zero_grad(set_to_none=True)
                self._loss(events, train, rows.numpy()).backward()
                optimizer.step()
                schedule.step()
                report()
            self.history.append(self.validate(report))
            if self.history[-1] == max(self.history):
                best, self.best_epoch = copy.deepcopy(self._modules.state_dict()), len(self.history)
        self._modules.load_state_dict(best)
        return self

    def validate(self, report: Callable[[], None] = lambda: None) -> float:
        """Return the MRR of the validation part."""
        ranks = []
        for first, scores in self.score("validation"):
            ranks.append(rank_events(self._stream, first, scores))
            report()
        return reciprocal_mean(np.concatenate(ranks))

    def score(self, part: str) -> Iterator[tuple[int, np.ndarray[tuple[int, int], np.dtype[np.float32]]]]:
        """Yield the first event and the scores of all destinations, [n, num_dst], of each batch of a part."""
        self._modules.eval()
        features = PairFeatures(self._stream)
        for first, end in self._stream.batches(part):
            blocks = []
            for start in range(first, end, _SCORED_AT_ONCE):
                events = np.arange(start, min(start + _SCORED_AT_ONCE, end))
                with torch.no_grad():
                    scores = self._forward(events, features.describe(start, start + len(events)))
                blocks.append(scores.cpu().numpy())
            yield first, np.concatenate(blocks)

    def _count_steps(self, total: int) -> Callable[[], None]:
        """Return a function that reports one more step each time it is called."""
        done = count(1)
        return lambda: self._report(next(done), total)

    def _describe_training(self, events: Ids, report: Callable[[], None]) -> PairExamples:
        """Describe training events, each with a sample of candidates, and standardize features by some of them."""
        if not len(events):
            raise OptionError("the training part has no events after the warm-up")
        first, features = int(events[0]), PairFeatures(self._stream)
        arrays: tuple[np.ndarray[Any, Any], ...] = ()
        for start, end in self._stream.batches("train"):
            report()
            if end <= first:
                continue
            begin = max(start, first)
            part = features.sample(begin, end, self._settings.candidates, seed=self._seed)
            # the largest arrays of a run: written in place, not joined from a second copy
            arrays = arrays or tuple(np.empty((len(events), *each.shape[1:]), each.dtype) for each in part)
            for whole, each in zip(arrays, part, strict=True):
                whole[begin - first : end - first] = each
        joined = PairExamples(*arrays)
        sample = np.random.default_rng(0).permutation(len(events))[:_STANDARDIZED]
        self.network.standardize(self._tensor(joined.pair[sample]), self._tensor(joined.src[sample]))
        return joined

    def _loss(self, events: Ids, train: PairExamples, rows: Ids) -> Tensor:
        """Cross entropy of the true destinations, with a sampled softmax."""
        chosen = train.take(rows)
        scores = self._forward(events[rows], chosen) + self._tensor(chosen.log_weight)
        return (scores.logsumexp(1) - scores[:, 0]).mean()

    def _forward(self, events: Ids, examples: PairExamples) -> Tensor:
        ends = None
        if self._embeddings is not None:
            ends = self._embeddings.lookup(events, examples.candidates)
        scores: Tensor = self.network(self._tensor(examples.pair), self._tensor(examples.src), ends)
        return scores

    def _tensor(self, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _num_batches(self, part: str) -> int:
        return sum(1 for _ in self._stream.batches(part))
