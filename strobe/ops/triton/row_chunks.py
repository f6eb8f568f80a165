"""Rows of a sparse matrix as GPU work: long rows cut into pieces, other rows sorted by length.

Rows of a tile then have similar lengths for any degree distribution; sorting is within windows of some thousand rows,
for locality. Pieces of long rows come first. Their sums are joined by a second kernel, or by the last program of a row,
in both cases in a fixed order, so results are deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from strobe.ops.sparse.leading_block import LeadingBlock
from strobe.ops.sparse.spmm import Sparse

_INT32_MAX = 2**31 - 1

LONGEST = 128
"""Default maximum entries of a piece."""

WINDOW = 4096
"""Rows sorted together."""

PIECES_PER_CHUNK = 16
"""Pieces per chunk, the work of one program."""


@dataclass(frozen=True, eq=False)
class LongRowChunks:
    """Chunks of long rows [H]: first and end entry, and index of the long row. Long row i has chunks
    ``cuts[i]:cuts[i + 1]``, and ``arrived[i]`` of them are done (0 before and after a product)."""

    number: int
    start: Tensor
    end: Tensor
    which: Tensor  # int32
    cuts: Tensor  # int32
    arrived: Tensor  # int32


@dataclass(frozen=True, eq=False)
class RowPieces:
    """Pieces [P]: first entry, number of entries, and row. The first ``num_cut`` are of long rows: ``long[i]`` has the
    pieces ``cuts[i]:cuts[i + 1]``."""

    start: Tensor  # int32 where that is enough, or int64
    length: Tensor  # int32
    row: Tensor  # int32
    num_rows: int
    num_cut: int
    long: Tensor  # int32
    cuts: Tensor  # int32

    @classmethod
    def of(cls, matrix: Sparse | LeadingBlock, longest: int = LONGEST) -> RowPieces:
        """Cached pieces of a matrix or a leading block."""
        rows: RowPieces | None = matrix.plans.get((cls, longest))
        if rows is None:
            block = matrix
            if not isinstance(block, LeadingBlock):
                block = LeadingBlock(block, block.num_rows, block.num_cols)
            rows = cls.from_bounds(block.matrix.row_ptr[: block.num_rows], block.ends, longest)
            matrix.plans[cls, longest] = rows
        return rows

    @classmethod
    def from_bounds(cls, start: Tensor, end: Tensor, longest: int) -> RowPieces:
        """Pieces of rows with entries ``start[i]:end[i]``."""
        length = end - start
        long = torch.nonzero(length > longest)[:, 0]
        pieces = torch.div(length[long] + longest - 1, longest, rounding_mode="floor")
        cuts = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
        num_cut = int(cuts[-1])
        which = torch.repeat_interleave(torch.arange(len(long), device=start.device), pieces, output_size=num_cut)
        begin = start[long][which] + longest * (torch.arange(num_cut, device=start.device) - cuts[which])
        short = torch.nonzero(length <= longest)[:, 0]
        order = torch.argsort(short // WINDOW * (longest + 1) + longest - length[short], stable=True)
        short = short[order]
        kind = torch.int32 if not len(end) or int(end.max()) <= _INT32_MAX else torch.int64
        return cls(
            start=torch.cat([begin, start[short]]).to(kind),
            length=torch.cat([(end[long][which] - begin).clamp(max=longest), length[short]]).to(torch.int32),
            row=torch.cat([long[which], short]).to(torch.int32),
            num_rows=len(start),
            num_cut=num_cut,
            long=long.to(torch.int32),
            cuts=cuts.to(torch.int32),
        )

    @cached_property
    def num_pieces(self) -> int:
        return len(self.start)

    @cached_property
    def chunks(self) -> LongRowChunks:
        """Chunks of the pieces of long rows."""
        pieces = self.cuts.diff()
        counts = torch.div(pieces + PIECES_PER_CHUNK - 1, PIECES_PER_CHUNK, rounding_mode="floor")
        cuts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        number = int(cuts[-1])
        which = torch.repeat_interleave(torch.arange(len(pieces), device=cuts.device), counts, output_size=number)
        first = self.cuts[which] + PIECES_PER_CHUNK * (torch.arange(number, device=cuts.device) - cuts[which])
        last = torch.minimum(first + PIECES_PER_CHUNK, self.cuts[which + 1]) - 1
        return LongRowChunks(
            number=number,
            start=self.start[first],
            end=self.start[last] + self.length[last],
            which=which.to(torch.int32),
            cuts=cuts.to(torch.int32),
            arrived=torch.zeros_like(self.long),
        )

    def allocate_output(self, x: Tensor, width: int) -> Tensor:
        """Allocate a result of ``width`` columns, followed by rows for the pieces."""
        return x.new_empty(self.num_rows + self.num_cut, width)
