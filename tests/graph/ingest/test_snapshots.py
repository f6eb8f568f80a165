"""The spool: events come in any order and go out by snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph.ingest import snapshots
from strobe.graph.ingest.snapshots import Spool


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=6), run=st.integers(1, 30))
def test_every_event_comes_out_once_with_its_snapshot(
    batches: list[list[int]], run: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), ["src", "weight"])
    expected: list[list[int]] = [[] for _ in range(6)]
    event = 0
    for batch in batches:
        events = np.arange(event, event + len(batch))
        event += len(batch)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshots, "EVENTS_PER_RUN", run)
            spool.add(np.array(batch, np.int64), {"src": events, "weight": events.astype(np.float32) / 2})
        for number, snap in zip(events.tolist(), batch, strict=True):
            expected[snap].append(number)
    with spool:
        found = list(spool.blocks(6))
    assert [sorted(block["src"].tolist()) for block in found] == expected
    assert all(np.array_equal(block["weight"] * 2, block["src"]) for block in found)
