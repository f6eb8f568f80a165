"""A small file cannot make Strobe take all memory by the number of nodes it claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from strobe.errors import FormatError
from strobe.graph import from_edges, open_graph
from strobe.graph.id_space import refuse_vast
from tests.graph.forged import forge_description

GIB = 1 << 30


def test_ids_that_are_used_or_fit_are_allowed() -> None:
    refuse_vast("g", 10**8, 0, GIB)
    refuse_vast("g", 10**9, 10**9, GIB)
    refuse_vast("g", 10**9, 3, 64 * GIB)


def test_ids_that_are_neither_are_refused_with_their_number() -> None:
    with pytest.raises(FormatError, match="1,000,000,000 nodes but only 3 cells"):
        refuse_vast("g", 10**9, 3, GIB)


def test_a_forged_number_of_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strobe.graph.id_space._memory_bytes", lambda: 8 * GIB)
    from_edges([[[0], [1]]], nodes=[[0, 1]], num_nodes=3).save(tmp_path / "graph")
    forge_description(tmp_path / "graph", lambda meta: meta.update(num_nodes=3_000_000_000))
    with pytest.raises(FormatError, match="3,000,000,000 nodes"):
        open_graph(tmp_path / "graph")
