"""Names for parts such that most nodes keep theirs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from strobe.ops.csr import IntArray


def renamed(part: IntArray, last: IntArray, num_parts: int) -> IntArray:
    """The same parts, [n], named such that as many nodes as can be have the name they ``last`` had; -1 is none."""
    known = last >= 0
    pair = part[known].astype(np.int64) * num_parts + last[known]
    staying = np.bincount(pair, minlength=num_parts * num_parts).reshape(num_parts, num_parts)
    name: IntArray = linear_sum_assignment(staying, maximize=True)[1]
    return name[part]
