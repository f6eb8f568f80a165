from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.errors import FormatError
from strobe.io.checksum import (
    add_checksum,
    parse_json,
    read_checksummed_json,
    read_json,
    strip_checksum,
    write_checksummed_json,
)

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.dictionaries(st.text(max_size=5), plain | st.lists(plain, max_size=3), max_size=4)


@settings(max_examples=30)
@given(values)
def test_checksummed_json_round_trip(given: dict[str, Any]) -> None:
    given.pop("crc32", None)
    text = json.dumps(add_checksum(given), allow_nan=False).encode()
    found = strip_checksum(parse_json(text))
    assert found is not None
    assert found.keys() == given.keys()


def test_any_other_value_is_refused(tmp_path: Path) -> None:
    write_checksummed_json(tmp_path / "a.json", {"epochs": 3, "lr": 0.1, "more": {"a": [1, 2]}})
    assert read_checksummed_json(tmp_path / "a.json", "")["more"] == {"a": [1, 2]}
    text = (tmp_path / "a.json").read_text()
    for old, new in (("3", "4"), ("0.1", "0.10000000000000002"), ("[\n", "[7,\n"), ('"lr"', '"lx"')):
        (tmp_path / "a.json").write_text(text.replace(old, new, 1))
        with pytest.raises(FormatError, match=r"a\.json was changed after it was written.*: call us"):
            read_checksummed_json(tmp_path / "a.json", "call us")


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe", b'{"a": NaN}', b"[-Infinity]", b"[1e400]", b'{"a": 1, "a": 1}', b"[" * 10**6, b"9" * 5000],
)
def test_file_that_is_not_json_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(FormatError, match=r"a\.json is damaged, it is not JSON"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("found", [None, 3, [], "x", {}, {"crc32": None}, {"crc32": ["x"]}, {"a": 1, "crc32": 7}])
def test_values_without_a_checksum_are_refused(found: object) -> None:
    assert strip_checksum(found) is None


def test_directory_or_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a JSON file"):
        read_json(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "a.json")
