"""Reciprocal ranks by the evaluator of the package py-tgb, to compare Strobe's with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strobe.protocols.events import EventStream, Floats


def reciprocal_ranks_by_py_tgb(stream: EventStream, first: int, scores: np.ndarray[Any, Any]) -> Floats:
    """Evaluate consecutive events, one at a time as TGB's own scripts do; skip the test where py-tgb is missing.

    Args:
        stream: the events.
        first: number of the first event.
        scores: of every destination for every event, [n, num_dst].
    """
    module = pytest.importorskip("tgb.linkproppred.evaluate", reason="py-tgb is not installed: pip install py-tgb")
    evaluator = module.Evaluator(name="tgbl-wiki")
    ptr, others = stream.conflicts
    result = np.empty(len(scores))
    for row, event in enumerate(range(first, first + len(scores))):
        true = stream.dst[event]
        negatives = np.delete(scores[row], [true, *others[ptr[event] : ptr[event + 1]]])
        request = {
            "y_pred_pos": scores[row, true : true + 1],
            "y_pred_neg": negatives[None],
            "eval_metric": ["mrr"],
        }
        result[row] = evaluator.eval(request)["mrr"]
    return result
