from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import DownloadError, InputError, OptionError
from strobe.protocols.events import read_events, split_by_quantile
from tests.support.event_streams import negatives, random_stream


def test_parts_end_at_quantiles_and_share_no_time() -> None:
    time = [0, 1, 2, 3, 4, 5, 6, 6, 6, 9]
    stream = split_by_quantile([3] * 10, [10, 12] * 5, time, validation=0.2, test=0.2, batch_size=4)
    # quantiles 0.6 and 0.8 of the times are 5.4 and 6
    assert stream.parts == {"train": (0, 6), "validation": (6, 9), "test": (9, 10)}
    assert (stream.num_src, stream.num_dst) == (1, 3)
    assert stream.dst.tolist() == [0, 2] * 5


def test_batches_end_with_each_part() -> None:
    stream = random_stream(0, num_events=20, batch_size=4)  # parts of 10, 5 and 5 events
    assert list(stream.batches("train")) == [(0, 4), (4, 8), (8, 10)]
    assert list(stream.batches("validation")) == [(10, 14), (14, 15)]
    assert stream.batch_ptr.tolist() == [0, 4, 8, 10, 14, 15, 19, 20]


def test_pairs_are_numbered_by_source_then_destination() -> None:
    stream = random_stream(1)
    pairs = stream.pairs
    owner = np.repeat(np.arange(stream.num_src), np.diff(pairs.src_ptr))
    assert np.array_equal(owner[pairs.slot], stream.src)
    assert np.array_equal(pairs.dst[pairs.slot], stream.dst)
    assert len(pairs) == len(set(zip(stream.src.tolist(), stream.dst.tolist(), strict=True)))


@pytest.mark.parametrize("seed", range(5))
def test_conflicts_are_the_destinations_of_the_same_source_and_time(seed: int) -> None:
    stream = random_stream(seed, num_events=200, num_src=3, ties=6)
    ptr, others = stream.conflicts
    assert len(others) > 0
    for event in range(len(stream)):
        excluded = {*others[ptr[event] : ptr[event + 1]].tolist(), int(stream.dst[event])}
        assert sorted(set(range(stream.num_dst)) - excluded) == negatives(stream, event, (0, len(stream)))


def test_events_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="event 2 is before event 1"):
        split_by_quantile([0, 0, 0], [0, 1, 0], [0, 5, 4], validation=0.2, test=0.2, batch_size=4)
    with pytest.raises(InputError, match="no events"):
        split_by_quantile([], [], [], validation=0.2, test=0.2, batch_size=4)
    with pytest.raises(OptionError, match="batch_size"):
        split_by_quantile([0], [0], [0], validation=0.2, test=0.2, batch_size=0)


def write(folder: Path, text: str) -> None:
    (folder / "wikipedia_jodie").mkdir()
    with gzip.open(folder / "wikipedia_jodie" / "wikipedia.csv.gz", "wt") as file:
        file.write(text)


def test_events_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "u,i,ts,label\n4,9,0,0\n2,8,1.5,0\n")
    src, dst, time = read_events("wikipedia_jodie", data_dir=tmp_path)
    assert (src.tolist(), dst.tolist(), time.tolist()) == ([4, 2], [9, 8], [0.0, 1.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [("u,i,ts\n1,x,0\n", "x"), ("u,i,ts\n1,,0\n", "1 values"), ("u,i,when\n1,2,0\n", "ts")],
)
def test_damaged_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text)
    with pytest.raises(InputError, match=message):
        read_events("wikipedia_jodie", data_dir=tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"wikipedia\.csv\.gz"):
        read_events("wikipedia_jodie", data_dir=tmp_path)
    with pytest.raises(OptionError, match="table of events"):
        read_events("as733", data_dir=tmp_path)
