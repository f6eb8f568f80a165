"""The rows of a sparse matrix as work for the GPU: long ones cut into pieces, others in order of length.

Rows of a tile then have about equally many entries, whatever the law of their degrees; they are put in order among
some thousand neighbours only, so that what is read and written together stays together. Pieces of long rows come first.
Where each is work for itself they write to rows of their own after those of the result, and a second kernel joins them;
where a whole program takes some of them together, the last of a row's programs does. Either way in order: the same bits
always.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from strobe.ops.corners import Corner
from strobe.ops.sparse import Sparse

_INT32_MAX = 2**31 - 1

LONGEST = 128
"""Entries of a piece, unless told otherwise."""

WINDOW = 4096
"""Rows that are put in order together."""

TOGETHER = 16
"""Pieces that a program takes at a time."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """Entries of long rows [H]: where they begin and end, and of the how-manieth long row they are. That row has the
    chunks ``cuts[i]:cuts[i + 1]``, and ``arrived[i]`` of them are summed up: 0 before and after a product."""

    number: int
    start: Tensor
    end: Tensor
    which: Tensor  # int32
    cuts: Tensor  # int32
    arrived: Tensor  # int32


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces [P]: where their entries begin, how many they are, and of which row. The first ``num_cut`` are of long
    rows: ``long[i]`` has the pieces ``cuts[i]:cuts[i + 1]``."""

    start: Tensor  # int32 where that is enough, or int64
    length: Tensor  # int32
    row: Tensor  # int32
    num_rows: int
    num_cut: int
    long: Tensor  # int32
    cuts: Tensor  # int32

    @classmethod
    def of(cls, matrix: Sparse | Corner, longest: int = LONGEST) -> Rows:
        """Those of a matrix or a corner of one, made once."""
        rows: Rows | None = matrix.plans.get((cls, longest))
        if rows is None:
            corner = matrix if isinstance(matrix, Corner) else Corner(matrix, matrix.num_rows, matrix.num_cols)
            rows = matrix.plans[cls, longest] = cls.between(
                corner.matrix.row_ptr[: corner.num_rows], corner.ends, longest
            )
        return rows

    @classmethod
    def between(cls, start: Tensor, end: Tensor, longest: int = LONGEST, window: int = WINDOW) -> Rows:
        """Rows whose entries begin and end where the arrays [R] say."""
        length = end - start
        long = torch.nonzero(length > longest)[:, 0]
        pieces = torch.div(length[long] + longest - 1, longest, rounding_mode="floor")
        cuts = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
        num_cut = int(cuts[-1])
        which = torch.repeat_interleave(torch.arange(len(long), device=start.device), pieces, output_size=num_cut)
        begin = start[long][which] + longest * (torch.arange(num_cut, device=start.device) - cuts[which])
        short = torch.nonzero(length <= longest)[:, 0]
        order = torch.argsort(short // window * (longest + 1) + longest - length[short], stable=True)
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
    def chunks(self) -> Chunks:
        """Pieces of long rows, some at a time."""
        pieces = self.cuts.diff()
        counts = torch.div(pieces + TOGETHER - 1, TOGETHER, rounding_mode="floor")
        cuts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        number = int(cuts[-1])
        which = torch.repeat_interleave(torch.arange(len(pieces), device=cuts.device), counts, output_size=number)
        first = self.cuts[which] + TOGETHER * (torch.arange(number, device=cuts.device) - cuts[which])
        last = torch.minimum(first + TOGETHER, self.cuts[which + 1]) - 1
        return Chunks(
            number=number,
            start=self.start[first],
            end=self.start[last] + self.length[last],
            which=which.to(torch.int32),
            cuts=cuts.to(torch.int32),
            arrived=torch.zeros_like(self.long),
        )

    def result(self, x: Tensor, width: int) -> Tensor:
        """Room for a result of so many columns and for the pieces after it."""
        return x.new_empty(self.num_rows + self.num_cut, width)
