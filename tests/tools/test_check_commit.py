from __future__ import annotations

import pytest

from tools.check_commit import check_message

BODY = "\n\nOne hop gave wrong gradients. tests/exchange/test_halo.py shows it.\n"


@pytest.mark.parametrize(
    "message",
    [
        "[exchange] Refuse a halo shallower than the model" + BODY,
        "[benchmarks, docs] Record causality" + BODY,
        "Seed each rank" + BODY + "# a comment of git\n",
        "Merge branch 'main'",
        'Revert "Seed each rank"',
    ],
)
def test_good_messages_pass(message: str) -> None:
    assert check_message(message) == []


@pytest.mark.parametrize(
    ("message", "fragment"),
    [
        ("", "empty"),
        ("Add " + "x" * 70 + BODY, "74 characters"),
        ("add a halo" + BODY, "Verb"),
        ("Add a halo." + BODY, "period"),
        ("Added a halo" + BODY, "imperative"),
        ("[ops] A GPU normalizes its snapshots" + BODY, "imperative"),
        ("Add a halo\nwithout an empty line", "second line"),
        ("Add a halo", "body"),
        ("Add a halo\n\n# a comment of git", "body"),
    ],
)
def test_bad_messages_are_refused_with_the_reason(message: str, fragment: str) -> None:
    assert any(fragment in error for error in check_message(message))
