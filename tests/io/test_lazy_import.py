from __future__ import annotations

import subprocess
import sys

import pytest

from strobe.io.lazy_import import lazy_import


def test_a_module_is_imported_when_a_name_is_read() -> None:
    code = """
import sys
from strobe.io.lazy_import import lazy_import
calendar = lazy_import("calendar")
assert "calendar" not in sys.modules
assert calendar.isleap(2024) and "calendar" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_name_that_a_module_has_not_and_a_module_that_is_not_there_are_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = lazy_import("calendar").nothing
    with pytest.raises(ModuleNotFoundError, match="strobe_absent"):
        _ = lazy_import("strobe_absent").name
