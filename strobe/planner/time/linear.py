"""Linear cost model of a pass: seconds per cell, per arc and per snapshot, and a fixed cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from strobe.errors import OptionError
from strobe.ops.sparse.csr import FloatArray, IntArray

_MIN_S = 1e-7  # below the resolution of clocks


@dataclass(frozen=True, kw_only=True)
class LinearCost:
    """Seconds of a pass by cells, arcs and snapshots.

    A rank steps through all snapshots of a window, however few cells it has in each: with many ranks, the cost per
    snapshot dominates models that step through time.
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
        """Return seconds, broadcast over the arguments."""
        counted = self.per_cell * np.asarray(cells) + self.per_arc * np.asarray(arcs)
        return np.asarray(counted + self.per_snapshot * np.asarray(snapshots) + self.fixed, np.float64)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def fit_linear_cost(
    cells: IntArray, arcs: IntArray, seconds: FloatArray, snapshots: npt.NDArray[np.integer] | None = None
) -> LinearCost:
    """Fit non-negative costs by least squares of relative errors, [M] each.

    Relative, because mispredicting a small batch spoils a schedule as much as mispredicting a large one.

    Raises:
        OptionError: no pass was timed.
    """
    if not len(seconds):
        raise OptionError("no pass was timed: there is nothing to fit")
    counted = cells, arcs, np.zeros_like(cells) if snapshots is None else snapshots, np.ones(len(seconds))
    inputs = np.stack(counted, 1).astype(np.float64)
    scale = inputs.max(axis=0)
    scale[scale == 0] = 1.0
    share, _ = nnls(inputs / scale / np.maximum(seconds, _MIN_S)[:, None], np.ones(len(seconds)))
    per_cell, per_arc, per_snapshot, fixed = (share / scale).tolist()
    return LinearCost(per_cell=per_cell, per_arc=per_arc, per_snapshot=per_snapshot, fixed=fixed)
