"""Metrics of a part of the snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.engine.examples import LocalExamples
from strobe.engine.forward import predict_windows
from strobe.engine.job import Job
from strobe.engine.windows import Window
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem

if TYPE_CHECKING:
    pass

ALL = "all"
_RankPredictions = tuple[int, IntArray, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]
"""Snapshot, indices of its examples, predictions, labels, offsets."""


def score(
    model: nn.Module, head: nn.Module, job: Job, windows: Iterable[Window], part: range, problem: Problem | None = None
) -> Metrics:
    """Metrics of a part, from the windows that score it (``Job.evaluation_windows``). Rank 0 gathers the predictions of
    all ranks in the order of one rank and broadcasts the metrics."""
    problem = job.problem if problem is None else problem
    model.eval()
    head.eval()
    with job.comm.ledger.phase("evaluate"):
        said = list(predict_windows(model, head, problem, windows, part))
        if job.partitioned_graph.is_partitioned:
            heard = job.comm.gather_object([_to_plain(*each) for each in said], kind="predictions")
            with job.comm.rank_0_alone("score"):
                found = problem.metrics(*_merge_ranks(heard)) if job.comm.rank == 0 else None
        else:  # this rank has said it all
            found = problem.metrics([answer for _, answer, _ in said], [asked.examples for _, _, asked in said])
        metrics: Metrics = job.comm.broadcast_object(found, kind="predictions")
        return metrics


def _to_plain(t: int, answer: Tensor, asked: LocalExamples) -> _RankPredictions:
    examples = asked.examples
    at = np.arange(len(asked)) if asked.example_index is None else asked.example_index
    base = None if examples.offset is None else examples.offset.cpu().numpy()
    return t, at, answer.numpy(), examples.labels.cpu().numpy(), base


def _merge_ranks(heard: list[list[_RankPredictions]]) -> tuple[list[Tensor], list[Examples]]:
    """Answers and examples of each snapshot, those of all ranks in one order."""
    by_time: dict[int, list[_RankPredictions]] = {}
    for each in (each for said in heard for each in said):
        by_time.setdefault(each[0], []).append(each)
    answered, asked = [], []
    for _, parts in sorted(by_time.items()):
        order = np.argsort(np.concatenate([part[1] for part in parts]), kind="stable")
        answer, y = (torch.from_numpy(np.concatenate([part[k] for part in parts])[order]) for k in (2, 3))
        bases = [part[4] for part in parts if part[4] is not None]
        base = torch.from_numpy(np.concatenate(bases)[order]) if bases else None
        answered.append(answer)
        asked.append(Examples(None, y, base))
    return answered, asked
