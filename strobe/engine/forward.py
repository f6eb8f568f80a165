"""Passes of a model over windows: the loss of a step, and predictions for snapshots that are to be scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from strobe.engine.examples import LocalExamples, MakeExamples, evaluation_examples, scored_cells, training_examples
from strobe.engine.windows import Segment, Window
from strobe.models.base import Model
from strobe.ops.dense.bf16 import BF16
from strobe.tasks.base import Examples, Problem
from strobe.tasks.grid import CandidateGrid, rank_in_grid
from strobe.tasks.heads import EdgeHead, GridScorer, NodeReadout, PairDecoder
from strobe.view import Carry, View, WindowData, gather_latest, save_latest

Prediction = tuple[int, Tensor, LocalExamples]


def apply_head(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """Apply the head to the examples, from the embeddings of all cells; positives of grids have their log-odds."""
    if examples.grids:
        assert isinstance(head, PairDecoder)
        return torch.cat([head.softmax_log_odds(*place_grid(z, grid)) for grid in examples.grids])
    narrow = z.dtype == BF16
    autocast = torch.autocast(z.device.type, BF16) if narrow else nullcontext()
    if examples.pairs is not None:
        assert isinstance(head, PairDecoder)
        with autocast:
            return head.batch_scores(z, examples.pairs)
    features = () if examples.features is None else (examples.features.to(z.device),)
    with autocast:
        predictions: Tensor = head(z, *(examples.cell_index or ()), *features)
    return predictions.float() if narrow else predictions


def place_grid(z: Tensor, grid: CandidateGrid) -> tuple[Tensor, CandidateGrid]:
    """Embeddings and a grid of equal type on one device; bfloat16 would not tell scores apart."""
    z = z.float() if z.dtype == BF16 else z
    assert grid.rows is not None
    rows = grid.rows[0].to(z.device), grid.rows[1].to(z.device)
    return z, replace(grid.to(z.device, z.dtype), rows=rows)


def window_examples(problem: Problem, window: Window, epoch: int) -> list[LocalExamples | None]:
    """Training examples of each segment of a window."""
    return [training_examples(problem, segment, problem.split.train, epoch) for segment in window]


def num_examples(examples: Iterable[LocalExamples | None]) -> int:
    """The total number of examples."""
    return sum(0 if each is None else len(each) for each in examples)


def window_loss(
    model: nn.Module,
    head: nn.Module,
    problem: Problem,
    window: Window,
    carry: Carry | None,
    examples: list[LocalExamples | None],
) -> tuple[Tensor, Carry | None]:
    """The summed loss of a window's examples on this rank, and the carry after it.

    A window of several segments is recomputed segment by segment in the backward pass: only the state at the start of
    each is stored.
    """
    total: Tensor | None = None
    for segment, local in zip(window, examples, strict=True):

        def run(carry: Carry | None, cells: WindowData = segment.data, local: LocalExamples | None = local) -> Any:
            cells.prefetch(*([] if problem.resamples_each_epoch else [local]))
            view = View(cells, carry)
            loss = view.attach_exchanges(_loss(model, view, head, problem, local))
            return loss, _clone_shared(cells, view.carry)

        recompute = len(window) > 1 and torch.is_grad_enabled()
        carry = segment.initial_state if segment.resets_state else carry
        loss, carry = checkpoint(run, carry, use_reentrant=False) if recompute else run(carry)
        total = loss if total is None else total + loss
    assert total is not None
    return total, carry


def _loss(model: nn.Module, view: View, head: nn.Module, problem: Problem, local: LocalExamples | None) -> Tensor:
    """The summed loss of the examples; without any, a 0 that still depends on all exchanges."""
    with view.data.autocast():
        if isinstance(model, Model) and view.data.local_partition is None and _predicts_every_cell(head, local):
            assert local is not None
            predictions = model.forward_readout(view, head.weight, head.bias)
            return problem.loss(predictions.float() if predictions.dtype == BF16 else predictions, local.examples)
        z: Tensor = model(view)
    if problem.is_edge_level:
        ends = gather_ends(view, head, z, local)
        save_latest(view, z)
        z = ends
    if local is None or not len(local):
        return z[:0].sum()
    return problem.loss(apply_head(head, z, local.examples), local.examples)


def gather_ends(view: View, head: nn.Module, z: Tensor, local: LocalExamples | None) -> Tensor:
    """The embeddings that both ends of pairs have: of local cells, then saved, received and unseen ones."""
    if local is None:
        return z
    assert isinstance(head, EdgeHead)
    assert local.slots is not None
    assert local.route is not None
    return gather_latest(view, z, local.slots, local.route, head.unseen)


def _predicts_every_cell(head: nn.Module, local: LocalExamples | None) -> TypeGuard[NodeReadout]:
    """Whether the examples are one of each cell, so that the readout can be fused with the model's last layer."""
    return local is not None and len(local) > 0 and local.examples.cell_index is None and isinstance(head, NodeReadout)


def embeddings(
    model: nn.Module,
    head: nn.Module,
    problem: Problem,
    windows: Iterable[Window],
    part: range,
    make_examples: MakeExamples | None = None,
    on_snapshot: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, Tensor, LocalExamples]]:
    """Yield (t, embeddings, examples that index them) per snapshot of a part, with states carried from the first window
    on; the windows start with the first snapshot of all. ``make_examples`` makes a snapshot's examples; by default they
    are the evaluation's.

    Nothing of a window is held when the next one is computed, unless the caller holds it. (torch.no_grad as a decorator
    of a generator would hold the last item.)
    """
    for segment, view, z in _passes(model, problem, windows, part):
        times = segment.targets_in(part)
        found = evaluation_examples(problem, segment, times, make_examples)
        rows = iter([z] * len(segment.times)) if problem.is_edge_level else iter(view.split(z))
        for t in segment.times:
            here = next(rows)
            if on_snapshot is not None:
                on_snapshot(t)
            local = next(found) if t in times else None
            if local is None:
                continue
            if problem.is_edge_level:
                with torch.no_grad():
                    here = gather_ends(view, head, z, local)
            if len(local):
                yield t, here, local
        del view, z, rows, here


def _passes(
    model: nn.Module, problem: Problem, windows: Iterable[Window], part: range
) -> Iterator[tuple[Segment, View, Tensor]]:
    """Yield (segment, view, embeddings of its cells) of the windows that predictions of a part depend on.

    A segment's embeddings are saved for later pairs once the next one is taken, and released if the caller has.
    """
    carry: Carry | None = None
    history = model.history if isinstance(model, Model) and not problem.is_edge_level else None
    for window in windows:
        if history is not None and window[-1].times.stop <= part.start - history:
            continue
        for segment in window:
            segment.data.prefetch()
            view = View(segment.data, None if segment.resets_state else carry)
            with torch.no_grad(), segment.data.autocast():
                z = model(view)
            yield segment, view, z
            if problem.is_edge_level:
                save_latest(view, z)
            carry = _clone_shared(segment.data, view.carry)
            del view, z


def predict_windows(
    model: nn.Module, head: nn.Module, problem: Problem, windows: Iterable[Window], part: range
) -> Iterator[Prediction]:
    """Yield (t, predictions, examples) per snapshot of a part; windows start with the first snapshot of all."""
    if problem.is_edge_level:
        for t, z, local in embeddings(model, head, problem, windows, part):
            yield t, predict_examples(head, z, local.examples), local
            del z  # it is all of its window's memory
        return
    for segment, view, z in _passes(model, problem, windows, part):
        scored = scored_cells(problem, segment, part)
        if scored is not None:
            predicted = torch.split(predict_examples(head, z[scored.cells], scored.joined), scored.sizes)
            yield from ((t, each, local) for (t, local), each in zip(scored.snapshots, predicted, strict=True))
        del view, z


@torch.no_grad()
def predict_examples(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """Predictions for examples of one snapshot from its embeddings, on the CPU; of ranked positives, see
    ``rank_in_grid``."""
    if examples.grids:
        assert isinstance(head, PairDecoder)
        scorers = [
            (grid, GridScorer(head, z_grid, grid)) for z_grid, grid in (place_grid(z, g) for g in examples.grids)
        ]
        return torch.cat([rank_in_grid(grid, scorer.blocks()) for grid, scorer in scorers]).cpu()
    if z.device.type != "cpu":
        cell_index = examples.cell_index and tuple(row.to(z.device) for row in examples.cell_index)
        pairs = None if examples.pairs is None else examples.pairs.to(z.device)
        examples = replace(examples, cell_index=cell_index, pairs=pairs)
    return apply_head(head, z, examples).cpu()


def detach_tree(carry: Any) -> Any:
    """The same carry with every tensor detached."""
    if isinstance(carry, Tensor):  # as most states are: a tree takes pytree 60 microseconds, in every step
        return carry.detach()
    if isinstance(carry, list):
        return [detach_tree(state) for state in carry]
    return pytree.tree_map_only(Tensor, Tensor.detach, carry)


def _clone_shared(cells: WindowData, carry: Carry) -> Carry:
    """A carry apart from memory of cells that will leave the device."""
    if cells.offloaded is None:
        return carry
    cloned: Carry = pytree.tree_map_only(Tensor, cells.offloaded.clone_if_shared(cells), carry)
    return cloned
