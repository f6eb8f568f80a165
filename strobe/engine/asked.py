"""What is asked of the cells of a segment: of all of them, or of those that this rank has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from strobe.engine.sharing import Mask
from strobe.engine.windows import Segment
from strobe.exchange.halo import Neighbours
from strobe.ops.csr import IntArray
from strobe.ops.threads import each_in_order
from strobe.tasks.base import Examples, Problem
from strobe.view import Share


@dataclass(frozen=True, eq=False)
class Asked:
    """Examples whose rows count over the cells of a view, followed by those of ``around``, which others have.

    ``at`` says which of the snapshot's examples they are, where it is not all.
    """

    examples: Examples
    around: Neighbours | None = None
    at: IntArray | None = None

    @property
    def nbytes(self) -> int:
        """The memory that the examples take."""
        examples = self.examples
        tensors = [*(examples.rows or ()), examples.y, *([] if examples.base is None else [examples.base])]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def __len__(self) -> int:
        return len(self.examples)


def whole(examples: Examples | None) -> Asked | None:
    """All examples of a snapshot, as they are."""
    return None if examples is None else Asked(examples)


def asked(problem: Problem, segment: Segment, part: range, epoch: int | None = None) -> Asked | None:
    """What is asked of a segment's cells that belong to a part, joined; rows count over the whole segment.

    Made once where it is the same in every epoch. None where nothing is asked and nobody else needs these cells.
    """

    def make() -> Asked | None:
        if segment.question is not None:
            return segment.question()
        cells = segment.cells
        places = [
            k
            for k, t in enumerate(segment.times)
            if t in part
            and (segment.asked is None or t in segment.asked)
            and (cells.share is None or len(cells.share.own[k]))
        ]

        def to_judge(number: int) -> Examples | None:
            return problem.to_judge(segment.times[places[number]], epoch, cells.sum_dtype)

        one_by_one = map(to_judge, range(len(places)))
        made = each_in_order(to_judge, len(places)) if problem.asked_at_once else one_by_one
        found = {k: examples for k, examples in zip(places, made, strict=True) if examples is not None}
        if not found:
            return None
        if cells.share is None:
            return Asked(join([(cells.cell_ptr[k], each) for k, each in found.items()], cells.num_cells, cells.device))
        return shared(cells.share, found, segment.targets)

    if epoch is not None and problem.changes_with_epoch:
        return make()
    return segment.kept.get(problem, (segment.times, part), make)


def asked_at(problem: Problem, segment: Segment, t: int) -> Asked | None:
    """What is asked of one snapshot of a segment when it is scored: always the same, so made once.

    Rows count over the cells of that snapshot alone.
    """
    return segment.kept.get(problem, t, lambda: local(problem.to_judge(t, None, None), segment, t))


def local(examples: Examples | None, segment: Segment, t: int) -> Asked | None:
    """The examples of a snapshot that ask this rank's cells."""
    share = segment.cells.share
    if examples is None or share is None:
        return None if examples is None else Asked(examples)
    k = segment.times.index(t)
    return shared(share.single(k, share.home), {0: examples}, None) if len(share.own[k]) else None


def shared(share: Share, found: dict[int, Examples], targets: Mask | None) -> Asked:
    """The examples of each snapshot whose first cell this rank has, joined. Cells of others that pairs need stand
    behind its own. ``targets`` says of every node whether it is asked."""
    nothing: IntArray = np.empty(0, np.int64)
    whole = {k: _rows(examples) for k, examples in found.items()}
    pairs = {k: (rows[0], rows[1]) for k, rows in whole.items() if len(rows) == 2}
    arcs = [pairs.get(k, (nothing, nothing)) for k in range(len(share.own))]
    around = share.asked_neighbours(arcs) if pairs else None
    first = np.concatenate(([0], np.cumsum([len(own) for own in share.own])))
    kept = []
    for k, examples in found.items():
        if examples.rows is None and targets is None:  # one of every cell: the rank's are where it has its cells
            places = np.arange(first[k], first[k + 1])
            kept.append((share.own[k], _chosen(examples, share.own[k], (places,))))
            continue
        owners = share.owners[k]
        mine = owners[whole[k][0]] == share.comm.rank
        if targets is not None:
            mine &= targets[share.graph[share.owners.times[k]].nodes[whole[k][0]]]
        at = np.flatnonzero(mine)
        columns = np.full(len(owners), -1, np.int64)
        columns[share.own[k]] = np.arange(first[k], first[k + 1])
        if around is not None:
            columns[around.positions[k]] = first[-1] + around.places[k]
        rows = tuple(columns[rows[at]] for rows in whole[k])
        if len(rows) == 1 and (np.diff(share.own[k]) < 0).any():  # cells have an order of their own: so have examples
            order = np.argsort(rows[0], kind="stable")
            at, rows = at[order], (rows[0][order],)
        kept.append((at, _chosen(examples, at, rows)))
    joined = join([(0, examples) for _, examples in kept], -1, share.device)
    return Asked(joined, around, kept[0][0] if len(kept) == 1 else None)


def join(found: list[tuple[int, Examples]], num_cells: int, device: torch.device) -> Examples:
    """Examples of several snapshots as one, given the number of cells before each snapshot."""
    y = torch.cat([examples.y for _, examples in found]).to(device)
    bases = [examples.base for _, examples in found if examples.base is not None]
    base = torch.cat(bases).to(device) if bases else None
    if all(examples.rows is None for _, examples in found) and len(y) == num_cells:
        return Examples(None, y, base)
    rows = [
        tuple(row + offset for row in examples.rows)
        if examples.rows is not None
        else (torch.arange(offset, offset + len(examples)),)
        for offset, examples in found
    ]
    return Examples(tuple(torch.cat(column).to(device) for column in zip(*rows, strict=True)), y, base)


def _rows(examples: Examples) -> tuple[IntArray, ...]:
    if examples.rows is None:
        return (np.arange(len(examples)),)
    return tuple(rows.cpu().numpy() for rows in examples.rows)


def _chosen(examples: Examples, at: IntArray, rows: tuple[IntArray, ...]) -> Examples:
    """Some of the examples, with other rows."""
    here = torch.from_numpy(at)
    base: Tensor | None = None if examples.base is None else examples.base.index_select(0, here)
    return replace(
        examples, rows=tuple(torch.from_numpy(each) for each in rows), y=examples.y.index_select(0, here), base=base
    )
