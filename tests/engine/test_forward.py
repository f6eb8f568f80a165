from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.engine.forward import (
    apply_head,
    detach_tree,
    embeddings,
    num_examples,
    predict_examples,
    predict_windows,
    window_examples,
    window_loss,
)
from strobe.engine.windows import Segment, Window
from strobe.models import TGCN
from strobe.models.gcn import StaticGCN
from strobe.tasks import Examples, Problem
from strobe.tasks.heads import NodeReadout
from strobe.view import Carry, View, WindowData
from tests.engine.test_windows import Asking, everybody, second
from tests.support.model_cases import CHANGING, INPUTS, run


def windows(problem: Problem, *cuts: list[range]) -> list[Window]:
    """Windows of segments over these times, in double precision."""
    return [
        tuple(Segment(part, WindowData(problem.graph[part.start : part.stop], dtype=torch.float64)) for part in parts)
        for parts in cuts
    ]


def loss_of(
    model: nn.Module, head: nn.Module, problem: Problem, window: Window, carry: Carry | None, epoch: int
) -> tuple[Tensor, int, Carry | None]:
    examples = window_examples(problem, window, epoch)
    loss, after = window_loss(model, head, problem, window, carry, examples)
    return loss, num_examples(examples), after


def model_and_head() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return TGCN(INPUTS, 4).double(), NodeReadout(4, 1).double()


class Pairs(nn.Module):
    def forward(self, z: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        return (z[source] * z[destination]).sum(1, keepdim=True)


def test_a_head_reads_all_cells_chosen_ones_or_both_ends_of_pairs() -> None:
    z = torch.arange(8.0).reshape(4, 2)
    double = NodeReadout(2, 1)
    nn.init.ones_(double.weight)
    nn.init.zeros_(double.bias)
    assert apply_head(double, z, Examples(None, torch.zeros(4))).tolist() == [[1], [5], [9], [13]]
    assert apply_head(double, z, Examples((torch.tensor([3, 0]),), torch.zeros(2))).tolist() == [[13], [1]]
    ends = (torch.tensor([0, 1]), torch.tensor([1, 1]))
    assert apply_head(Pairs(), z, Examples(ends, torch.zeros(2))).tolist() == [[3], [13]]


def test_the_loss_of_a_window_is_the_sum_over_its_training_examples() -> None:
    model, head = model_and_head()
    problem = Asking(second)
    (window,) = windows(problem, [range(6)])
    loss, count, _ = loss_of(model, head, problem, window, None, 0)
    z, _ = run(model, problem.graph)
    rows = [1, 5, 8]  # the second cells of snapshots 0, 1 and 3; 2 is empty, 4 and 5 are not for training
    expected = (head(z[rows])[:, 0] - torch.tensor([0.0, 1.0, 3.0])).square().sum()
    assert count == 3
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("parts", [[range(1), range(1, 4)], [range(2), range(2, 3), range(3, 4)]])
def test_segments_computed_again_give_the_same_loss_gradients_and_carry(parts: list[range]) -> None:
    model, head = model_and_head()
    problem = Asking(everybody)
    parameters = [*model.parameters(), *head.parameters()]
    results = []
    for window in windows(problem, [range(4)], parts):
        loss, count, carry = loss_of(model, head, problem, window, None, 0)
        results.append([loss, torch.tensor(count), *torch.autograd.grad(loss, parameters, retain_graph=True), *carry])  # type: ignore[misc]
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


def test_activations_of_segments_are_recomputed() -> None:
    passes = []

    class Watched(nn.Module):
        width = 4

        def __init__(self) -> None:
            super().__init__()
            self.inner = TGCN(INPUTS, 4).double()

        def forward(self, view: View) -> Tensor:
            passes.append(view.num_cells)
            out: Tensor = self.inner(view)
            return out

    head = nn.Linear(4, 1).double()
    problem = Asking(everybody)
    whole, parted = windows(problem, [range(4)], [range(2), range(2, 4)])
    loss_of(Watched(), head, problem, whole, None, 0)[0].backward()
    assert passes == [13]
    passes.clear()
    loss_of(Watched(), head, problem, parted, None, 0)[0].backward()
    assert passes == [7, 6, 6, 7], "forward in order, then again from the last"
    passes.clear()
    with torch.no_grad():
        loss_of(Watched(), head, problem, parted, None, 0)
    assert passes == [7, 6], "nothing is computed again where nothing is learnt"


def test_a_window_continues_from_its_carry() -> None:
    model, head = model_and_head()
    problem = Asking(everybody)
    whole, first, rest = windows(problem, [range(4)], [range(2)], [range(2, 4)])
    expected, count, _ = loss_of(model, head, problem, whole, None, 0)
    one, seven, carry = loss_of(model, head, problem, first, None, 0)
    two, six, _ = loss_of(model, head, problem, rest, carry, 0)
    fresh, _, _ = loss_of(model, head, problem, rest, None, 0)
    assert (seven, six, count) == (7, 6, 13)
    torch.testing.assert_close(one + two, expected, rtol=1e-10, atol=0)
    assert not torch.isclose(two, fresh)


@pytest.mark.parametrize("parts", [[range(2, 3)], [range(4, 5), range(5, 6)]])
def test_a_window_without_examples_has_no_loss_but_a_carry(parts: list[range]) -> None:
    model, head = model_and_head()
    problem = Asking(everybody)
    (window,) = windows(problem, parts)
    loss, count, carry = loss_of(model, head, problem, window, None, 0)
    assert (float(loss), count) == (0.0, 0)
    assert carry is not None
    assert carry[0].shape == (CHANGING.num_nodes, 4)


@pytest.mark.parametrize("cuts", [[[range(6)]], [[range(3)], [range(3, 5), range(5, 6)]]])
def test_answers_come_for_every_snapshot_of_a_part_with_the_past_behind_them(cuts: list[list[range]]) -> None:
    model, head = model_and_head()
    problem = Asking(everybody)
    z, _ = run(model, problem.graph)
    found = list(predict_windows(model, head, problem, windows(problem, *cuts), range(3, 6)))
    assert [t for t, _, _ in found] == [3, 4, 5]
    torch.testing.assert_close(torch.cat([said for _, said, _ in found]), head(z[7:]).detach(), rtol=1e-10, atol=1e-12)
    assert torch.cat([asked.examples.labels for _, _, asked in found]).tolist() == [
        *range(30, 36),
        *range(40, 44),
        *range(50, 56),
    ]
    assert not any(said.requires_grad for _, said, _ in found)


def test_predictions_skip_snapshots_without_examples() -> None:
    model, head = model_and_head()
    problem = Asking(lambda t, epoch: None if t == 4 else second(t, epoch))
    found = list(predict_windows(model, head, problem, windows(problem, [range(6)]), range(2, 6)))
    assert [(t, said.shape) for t, said, _ in found] == [(3, (1, 1)), (5, (1, 1))]


@pytest.mark.parametrize("asked", [everybody, second, lambda t, epoch: (everybody if t % 2 else second)(t, epoch)])
def test_snapshots_of_a_window_are_predicted_at_once_as_each_alone(asked: Any) -> None:
    model, head = model_and_head()
    problem = Asking(asked)
    cuts = [[range(3)], [range(3, 5), range(5, 6)]]
    found = list(predict_windows(model, head, problem, windows(problem, *cuts), range(1, 6)))
    alone = list(embeddings(model, head, problem, windows(problem, *cuts), range(1, 6)))
    assert [t for t, *_ in found] == [t for t, *_ in alone]
    for (_, predicted, _), (_, z, local) in zip(found, alone, strict=True):
        assert torch.equal(predicted, predict_examples(head, z, local.examples))


def test_windows_before_the_history_of_a_model_are_left_out() -> None:
    problem, cut = Asking(everybody), [[range(2)], [range(2, 4)], [range(4, 6)]]
    model, head = StaticGCN(INPUTS, 4).double(), NodeReadout(4, 1).double()
    read: list[int] = []
    model.register_forward_hook(lambda module, given, z: read.append(len(z)))
    cells = [window[0].data.num_cells for window in windows(problem, *cut)]
    for history, first in ((0, 2), (1, 1), (2, 1), (3, 0), (None, 0)):
        model.history = history  # type: ignore[assignment]
        read.clear()
        found = list(predict_windows(model, head, problem, windows(problem, *cut), range(4, 6)))
        assert read == cells[first:]
        assert [t for t, *_ in found] == [4, 5]


def test_a_window_is_released_before_the_next_one_is_scored() -> None:
    model, head = model_and_head()
    problem, before = Asking(everybody), list[weakref.ref[torch.UntypedStorage]]()

    def watched(module: nn.Module, given: Any, z: Tensor) -> None:
        assert all(each() is None for each in before)
        before.append(weakref.ref(z.untyped_storage()))

    model.register_forward_hook(watched)
    cuts = [[range(2)], [range(2, 4), range(4, 5)], [range(5, 6)]]
    assert len([said for _, said, _ in predict_windows(model, head, problem, windows(problem, *cuts), range(6))]) == 5
    assert len(before) == 4


def test_a_carry_is_cut_from_its_history_whatever_it_is_made_of() -> None:
    tensor = torch.ones(2, requires_grad=True) * 2
    carry = [tensor, (tensor, None), {"a": [tensor], "b": 3}]
    cut = detach_tree(carry)
    assert isinstance(cut[1], tuple)
    assert cut[1][1] is None
    assert cut[2]["b"] == 3
    for part in (cut[0], cut[1][0], cut[2]["a"][0]):
        assert torch.equal(part, tensor)
        assert not part.requires_grad
