"""The evaluator of the package py-tgb, where it is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from strobe.errors import MissingPackageError
from strobe.protocols.events import EventStream, Floats


def tgb_version() -> str | None:
    """Return the version of py-tgb, or None if it is not installed."""
    try:
        return version("py-tgb") if find_spec("tgb") is not None else None
    except PackageNotFoundError:
        return None


class TgbEvaluator:
    """Reciprocal ranks by py-tgb, one event at a time as TGB's own scripts compute them.

    Args:
        name: TGB's name of the data set.

    Raises:
        MissingPackageError: py-tgb is not installed.
    """

    def __init__(self, name: str) -> None:
        try:
            from tgb.linkproppred.evaluate import Evaluator
        except ImportError as error:
            raise MissingPackageError("py-tgb", "TGB's own evaluator") from error
        self._evaluator: Any = Evaluator(name=name)

    def reciprocal_ranks(self, stream: EventStream, first: int, scores: np.ndarray[Any, Any]) -> Floats:
        """Evaluate consecutive events against all destinations but those that conflict.

        Args:
            stream: the events.
            first: number of the first event.
            scores: of every destination for every event, [n, num_dst].
        """
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
            result[row] = self._evaluator.eval(request)["mrr"]
        return result
