"""Names of Strobe's models, so that protocols can list them without importing torch (a test compares them)."""

from __future__ import annotations

MODEL_NAMES = (
    "tgcn",
    "dcrnn",
    "evolvegcn-o",
    "evolvegcn-h",
    "wd-gcn",
    "gat-lstm",
    "dysat",
    "mpnn-lstm",
    "sage",
    "roland",
    "gconv-gru",
    "gc-lstm",
    "gcn",
)


def names_from(first: str) -> tuple[str, ...]:
    """All names, the default model first."""
    return (first, *(name for name in MODEL_NAMES if name != first))
