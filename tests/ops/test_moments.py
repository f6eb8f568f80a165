"""Rows shifted and scaled by sums of columns, against torch's batch normalisation of every snapshot."""

from __future__ import annotations

import torch

from strobe.ops.moments import standardise_columns
from strobe.ops.segments import segment_standardise


def test_rows_and_gradients_are_those_of_batch_normalisation() -> None:
    torch.manual_seed(0)
    ptr = (0, 5, 5, 6, 40)  # several rows, none, one
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((40, 3), (3,), (3,))]
    towards = torch.randn(40, 3, dtype=torch.float64)
    results = []
    for run in (standardise_columns, segment_standardise):
        out, means, variances = run(given[0], given[1], given[2], 1e-5, ptr)
        results.append([out, means, variances, *torch.autograd.grad((out * towards).sum(), given)])
    for found, right in zip(*results, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10, equal_nan=True)
