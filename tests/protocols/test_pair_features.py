from __future__ import annotations

import numpy as np
import pytest

from strobe.errors import OptionError
from strobe.protocols.events import EventStream
from strobe.protocols.pair_feature_kernels import NUM_PAIR_FEATURES, NUM_SRC_FEATURES
from strobe.protocols.pair_features import PAIR_FEATURES, SRC_FEATURES, PairFeatures
from tests.support.event_streams import random_stream, with_changed_tail
from tests.support.plain_pair_features import PlainFeatures

STREAMS = {
    "random": random_stream(0),
    "few sources": random_stream(1, num_src=2, num_dst=40, batch_size=5, num_events=60),
    "few destinations": random_stream(2, num_src=70, num_dst=2),
    "one of each": random_stream(3, num_src=1, num_dst=1, num_events=40),
    "all at once": random_stream(4, ties=1),
}


def test_every_feature_has_a_name() -> None:
    assert len(PAIR_FEATURES) == NUM_PAIR_FEATURES
    assert len(SRC_FEATURES) == NUM_SRC_FEATURES


@pytest.mark.parametrize("name", STREAMS)
def test_features_equal_their_definition(name: str) -> None:
    stream = STREAMS[name]
    features = PairFeatures(stream)
    for first, end in zip(stream.batch_ptr[:-1].tolist(), stream.batch_ptr[1:].tolist(), strict=True):
        examples = features.describe(first, end)
        plain = PlainFeatures(stream, first)
        for row, event in enumerate(range(first, end)):
            src, now = int(stream.src[event]), float(stream.time[event])
            np.testing.assert_allclose(examples.src[row], plain.src(src, now), rtol=1e-5, atol=1e-5)
            expected = [plain.pair(src, dst, now) for dst in range(stream.num_dst)]
            np.testing.assert_allclose(examples.pair[row], expected, rtol=1e-5, atol=1e-5, err_msg=str(event))


def test_features_depend_on_earlier_batches_only() -> None:
    stream = STREAMS["random"]
    for first, end in stream.batches("validation"):
        # the scored batch may change too, but for the sources and times it is asked for
        changed = with_changed_tail(stream, end)
        changed.dst[first:end] = (changed.dst[first:end] + 1) % stream.num_dst
        same, other = PairFeatures(stream).describe(first, end), PairFeatures(changed).describe(first, end)
        assert np.array_equal(same.pair, other.pair)
        assert np.array_equal(same.src, other.src)


def test_samples_are_described_like_all_destinations() -> None:
    stream = STREAMS["few sources"]
    for first, end in stream.batches("validation"):
        sample = PairFeatures(stream).sample(first, end, 12, seed=0)
        every = PairFeatures(stream).describe(first, end)
        assert np.array_equal(sample.pair, np.take_along_axis(every.pair, sample.candidates[:, :, None], axis=1))
        assert np.array_equal(sample.src, every.src)


def test_a_sample_begins_with_the_true_destination_and_stands_for_all() -> None:
    stream = STREAMS["few sources"]
    drawn = set()
    for first, end in stream.batches("validation"):
        sample = PairFeatures(stream).sample(first, end, 30, seed=1)
        assert np.array_equal(sample.candidates[:, 0], stream.dst[first:end])
        assert all(len(set(row)) == 30 for row in sample.candidates.tolist())
        assert np.exp(sample.log_weight).sum(1) == pytest.approx(np.full(end - first, 40.0))
        again = PairFeatures(stream).sample(first, end, 30, seed=1)
        assert np.array_equal(again.candidates, sample.candidates)
        drawn |= set(sample.candidates[sample.log_weight > 0].tolist())
    assert len(drawn) > 15


def test_a_sample_of_all_destinations_has_no_weights() -> None:
    stream = STREAMS["random"]
    sample = PairFeatures(stream).sample(64, 68, 100, seed=0)
    assert np.array_equal(np.sort(sample.candidates, axis=1), np.tile(np.arange(stream.num_dst), (4, 1)))
    assert not np.any(sample.log_weight)


def test_met_destinations_are_in_the_sample() -> None:
    stream = STREAMS["few sources"]
    first, end = next(stream.batches("validation"))
    sample = PairFeatures(stream).sample(first, end, 20, seed=0)
    for row, event in enumerate(range(first, end)):
        met = PlainFeatures(stream, first).recent(src=int(stream.src[event]))
        assert set(met[:12]) <= set(sample.candidates[row].tolist())


def test_batches_are_described_in_order() -> None:
    stream = STREAMS["random"]
    features = PairFeatures(stream)
    features.describe(16, 24)
    with pytest.raises(OptionError, match="no way back"):
        features.describe(8, 16)
    with pytest.raises(OptionError, match="one batch"):
        features.describe(20, 28)


def test_a_stream_without_time_has_finite_features() -> None:
    zeros = np.zeros(6, np.int64)
    stream = EventStream(
        src=zeros, dst=zeros, time=np.zeros(6), num_src=1, num_dst=1, train_end=4, validation_end=5, batch_size=2
    )
    for first, end in stream.batches("test"):
        assert np.isfinite(PairFeatures(stream).describe(first, end).pair).all()
