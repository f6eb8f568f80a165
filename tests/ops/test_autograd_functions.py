"""Rules for ``backward`` of all autograd functions, read from their syntax tree: kernels for GPUs included."""

from __future__ import annotations

import ast
from pathlib import Path

STROBE = Path(__file__).parents[2] / "strobe"


def test_saved_tensors_are_read_once() -> None:
    """Under recomputation (``torch.utils.checkpoint``) a second read raises CheckpointError."""
    reads = {
        f"{path.relative_to(STROBE)}:{function.lineno}": sum(
            isinstance(node, ast.Attribute) and node.attr == "saved_tensors" for node in ast.walk(function)
        )
        for path in STROBE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
    }
    assert len([place for place, count in reads.items() if count]) >= 10
    assert [place for place, count in reads.items() if count > 1] == []
