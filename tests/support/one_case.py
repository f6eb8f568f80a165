"""pytest plugin that runs one case of each test: a small awkward one, else the last."""

from __future__ import annotations

import pytest

AWKWARD = ("gaps", "(1, 3)-gaps", "(3, 17)-gaps", "(65, 0, 3, 130)", "True-3]", "[3-5]", "[2-33]")
"""Nodes that come and go, an empty snapshot, sizes that are no powers of two; the last that matches wins."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: dict[str, pytest.Item] = {}
    for item in sorted(items, key=lambda each: max(at for at, case in enumerate(("", *AWKWARD)) if case in each.name)):
        chosen[getattr(item, "originalname", item.name)] = item
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen.values()])
    items[:] = chosen.values()
