"""A slice of the fingerprint: losses of six presets, each with one model, are those that were recorded."""

from __future__ import annotations

import json

import pytest

from benchmarks.fingerprint import RECORDED, SLICE, fingerprints


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_losses_are_those_that_were_recorded(num_ranks: int) -> None:
    """To nine digits: processors without AVX-512 add up in another order."""
    known = json.loads(RECORDED.read_text())
    for case, found in fingerprints(SLICE, [num_ranks], epochs=2).items():
        losses, expected = ([float(loss) for loss in each["losses"][:2]] for each in (found, known[case]))
        assert losses == pytest.approx(expected, rel=1e-9), case
