from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import UnknownNameError
from strobe.protocols import ProtocolRequest, find_protocol
from strobe.protocols.event_baselines import BASELINES, score_baseline
from strobe.protocols.ranking import rank_events, reciprocal_mean
from strobe.protocols.tgb import WIKI
from tests.support.event_streams import random_stream
from tests.support.py_tgb import reciprocal_ranks_by_py_tgb

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")

#: MRR of the validation and the test part; EdgeBank's are those of TGB's leaderboard
KNOWN = {
    "edgebank": (0.5267, 0.4947),
    "edgebank-window": (0.5997, 0.5710),
    "most-recent-first": (0.7588, 0.7290),
}


def write_stream(folder: Path, num_events: int = 600) -> Path:
    """A file in the form of wikipedia_jodie, with users from 0 and pages from 50."""
    stream = random_stream(0, num_events=num_events, num_src=12, num_dst=15)
    (folder / "wikipedia_jodie").mkdir()
    rows = (f"{s},{d + 50},{t:.0f},0\n" for s, d, t in zip(stream.src, stream.dst, stream.time, strict=True))
    with gzip.open(folder / "wikipedia_jodie" / "wikipedia.csv.gz", "wt") as file:
        file.writelines(["u,i,ts,label\n", *rows])
    return folder


def test_the_protocol_is_registered() -> None:
    assert find_protocol("tgbl-wiki") is WIKI
    assert {row.method for row in WIKI.published()} >= {"EdgeBank, unlimited", "EdgeBank, time window", "DyGFormer"}


def test_parts_and_batches_are_those_of_tgb(tmp_path: Path) -> None:
    stream = WIKI.read(ProtocolRequest(data_dir=write_stream(tmp_path)))
    cuts = np.quantile(stream.time, [0.70, 0.85])
    assert stream.train_end == (stream.time <= cuts[0]).sum()
    assert stream.validation_end == (stream.time <= cuts[1]).sum()
    assert (stream.num_src, stream.num_dst, stream.batch_size) == (12, 15, 200)


def test_baselines_are_scored_on_every_event(tmp_path: Path) -> None:
    request = ProtocolRequest(data_dir=write_stream(tmp_path))
    stream, results = WIKI.read(request), WIKI.run_baselines(request)
    assert [result.method for result in results] == list(BASELINES)
    for result in results:
        ranks = [rank_events(stream, *batch) for batch in score_baseline(stream, result.method, "test")]
        assert result.test == pytest.approx((reciprocal_mean(np.concatenate(ranks)),), rel=1e-6)
        assert (result.coverage, result.seeds) == (1.0, (0,))


def test_a_model_has_a_value_per_seed(tmp_path: Path) -> None:
    stages: list[str] = []
    request = ProtocolRequest(
        data_dir=write_stream(tmp_path), seeds=2, epochs=1, on_stage=lambda stage, done, total: stages.append(stage)
    )
    result = WIKI.run(request)
    assert (result.method, result.seeds, result.coverage) == ("pair-network", (0, 1), 1.0)
    assert all(0 < value < 1 for value in (*result.validation, *result.test))
    assert result.settings["epochs"] == 1
    assert {stage.split(",")[0] for stage in stages} == {"training", "testing"}


def test_unknown_models_and_data_sets_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'edgebank'"):
        WIKI.run(ProtocolRequest(model="edgebnk"))
    with pytest.raises(UnknownNameError, match="wikipedia_jodie"):
        WIKI.run(ProtocolRequest(data="as733"))


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "wikipedia_jodie").is_dir(), reason="wikipedia_jodie is not on this machine")
def test_baselines_have_the_published_values() -> None:
    request = ProtocolRequest(data_dir=SHARED)
    stream = WIKI.read(request)
    assert {part: end - first for part, (first, end) in stream.parts.items()} == {
        "train": 110232,
        "validation": 23621,
        "test": 23621,
    }
    for result in WIKI.run_baselines(request):
        if result.method in KNOWN:
            assert (round(result.validation[0], 4), round(result.test[0], 4)) == KNOWN[result.method]
    published = {row.method: (row.validation, row.test) for row in WIKI.published()}
    assert published["EdgeBank, unlimited"] == KNOWN["edgebank"]
    assert published["EdgeBank, time window"] == KNOWN["edgebank-window"]


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "wikipedia_jodie").is_dir(), reason="wikipedia_jodie is not on this machine")
def test_ranks_on_the_real_events_equal_those_of_py_tgb() -> None:
    stream = WIKI.read(ProtocolRequest(data_dir=SHARED))
    for first, scores in score_baseline(stream, "most-recent-first", "test"):
        theirs = reciprocal_ranks_by_py_tgb(stream, first, scores)
        assert theirs == pytest.approx(1 / rank_events(stream, first, scores), rel=1e-6)
