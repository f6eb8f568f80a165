from __future__ import annotations

import ast

from benchmarks.house import PACKAGE, count_section_lines, functions_of_step, imported_modules, late_imports

MODULE = ast.parse(
    '''
import strobe.plan
from strobe import api, errors
from strobe.ops.time import gru
import torch

def f():
    """Do it.

    Args:
        x: a number.
    """
    from strobe.graph import Snapshot
    import_module("strobe.cli")
'''
)


def test_imports_inside_functions_and_by_name_are_late() -> None:
    assert late_imports({PACKAGE / "a.py": MODULE}) == ["strobe/a.py:13", "strobe/a.py:14"]
    assert late_imports({PACKAGE / "registry.py": MODULE}) == ["strobe/registry.py:13"]


def test_imported_modules_are_those_of_strobe() -> None:
    assert set(imported_modules(MODULE)) == {"strobe.plan", "strobe.api", "strobe.ops.time", "strobe.graph"}


def test_lines_of_sections_are_counted() -> None:
    assert count_section_lines({PACKAGE / "a.py": MODULE}) == 2


def test_a_step_runs_through_the_loop_the_model_and_its_time_stage() -> None:
    files = functions_of_step()
    assert {"strobe/engine/fit.py", "strobe/models/tgcn.py", "strobe/ops/time/gru.py"} <= set(files)
    assert "train_step" in files["strobe/engine/fit.py"]
