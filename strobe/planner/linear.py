"""Seconds of a pass as a straight line: so much a cell, an arc and a snapshot, and so much in any case."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from strobe.errors import OptionError
from strobe.ops.csr import FloatArray, IntArray

_LEAST_S = 1e-7  # below what a clock tells


@dataclass(frozen=True, kw_only=True)
class Linear:
    """What passes cost, by their cells, arcs and snapshots.

    Snapshots count by themselves, because a rank goes through all of a window, however few cells it has in each: of
    many ranks of a model that steps through time that is most of what they do.
    """

    per_cell: float
    per_arc: float
    fixed: float
    per_snapshot: float = 0.0

    def __call__(
        self,
        cells: IntArray | FloatArray | int,
        arcs: IntArray | FloatArray | int,
        snapshots: IntArray | FloatArray | int = 0,
    ) -> FloatArray:
        """Seconds, of the shape of all; a pass over nothing costs what any does."""
        counted = self.per_cell * np.asarray(cells) + self.per_arc * np.asarray(arcs)
        return np.asarray(counted + self.per_snapshot * np.asarray(snapshots) + self.fixed, np.float64)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def fit_linear(
    cells: IntArray, arcs: IntArray, seconds: FloatArray, snapshots: npt.NDArray[np.integer] | None = None
) -> Linear:
    """The line with the least squares of relative errors, [M] each; nothing on it costs less than nothing.

    Relative, because a batch that is small and told half too long spoils a schedule as much as a large one.
    """
    from scipy.optimize import nnls

    if not len(seconds):
        raise OptionError("no pass was timed: there is nothing to learn from")
    counted = cells, arcs, np.zeros_like(cells) if snapshots is None else snapshots, np.ones(len(seconds))
    inputs = np.stack(counted, 1).astype(np.float64)
    scale = inputs.max(axis=0)
    scale[scale == 0] = 1.0
    share, _ = nnls(inputs / scale / np.maximum(seconds, _LEAST_S)[:, None], np.ones(len(seconds)))
    per_cell, per_arc, per_snapshot, fixed = (share / scale).tolist()
    return Linear(per_cell=per_cell, per_arc=per_arc, per_snapshot=per_snapshot, fixed=fixed)
