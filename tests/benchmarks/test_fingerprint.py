"""A slice of the fingerprint: losses of six presets, each with one model, are those that were recorded."""

from __future__ import annotations

import json

import pytest

from benchmarks import fingerprint
from benchmarks.fingerprint import RECORDED, SLICE, fingerprints
from tests.support.ranks import threads_for_processes


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.usefixtures("ranks_are_threads")
def test_losses_are_those_that_were_recorded(num_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To nine digits: processors without AVX-512 add up in another order."""
    monkeypatch.setattr(fingerprint, "run_ranks", threads_for_processes)
    known = json.loads(RECORDED.read_text())
    for case, found in fingerprints(SLICE, [num_ranks], epochs=2).items():
        losses, expected = ([float(loss) for loss in each["losses"][:2]] for each in (found, known[case]))
        assert losses == pytest.approx(expected, rel=1e-9), case
