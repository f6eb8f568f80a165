from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strobe.engine.forward import detach_tree
from strobe.errors import OptionError
from strobe.models.time import Attention, TemporalLinear, Time, as_time
from strobe.ops.time.sequences import Sequences
from tests.ops.time.test_attention import CHANGING, EVERYONE, rows, sequences_of

WIDTH = 4
STAGES: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: nn.GRU(WIDTH, WIDTH, num_layers=2),
    "lstm": lambda: nn.LSTM(WIDTH, WIDTH, bias=False),
    "gru cell": lambda: nn.GRUCell(WIDTH, WIDTH),
    "lstm cell": lambda: nn.LSTMCell(WIDTH, WIDTH, bias=False),
    "linear": lambda: TemporalLinear(WIDTH, WIDTH, span=3),
    "linear of one": lambda: TemporalLinear(WIDTH, WIDTH, span=1),
    "attention to all": lambda: Attention(WIDTH, 2, positions=3),
    "attention to some": lambda: Attention(WIDTH, 1, span=4),
    "attention without positions": lambda: Attention(WIDTH, 2, span=2, positions=0),
    "torch attention": lambda: nn.MultiheadAttention(WIDTH, 2),
    "torch attention without bias": lambda: nn.MultiheadAttention(WIDTH, 2, bias=False, batch_first=True),
    "transformer": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0),
    "transformer, norm first": lambda: nn.TransformerEncoderLayer(
        WIDTH, 1, 8, dropout=0.0, norm_first=True, activation="gelu", batch_first=True
    ),
}
GAPS = {"changing": CHANGING, "everyone": EVERYONE}


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Time:
    torch.manual_seed(0)
    return as_time(STAGES[request.param]()).double()


def encode(stage: Time, x: Tensor, present: list[list[int]], cuts: list[int], cut_history: bool = False) -> Tensor:
    """Outputs of all cells, one window after the other."""
    state: Any = None
    outputs = []
    for first, last in zip([0, *cuts], [*cuts, len(present)], strict=True):
        sequences = sequences_of(present[first:last], 5)
        begin = sum(map(len, present[:first]))
        out, state = stage.encode(x[begin : begin + sequences.num_cells], state, sequences)
        outputs.append(out)
        state = detach_tree(state) if cut_history else state
    return torch.cat(outputs)


@pytest.mark.parametrize("present", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize("cuts", [[3], [1, 2, 4]])
def test_consecutive_windows_equal_one_window(stage: Time, present: list[list[int]], cuts: list[int]) -> None:
    x = rows(sum(map(len, present)), WIDTH)
    whole, parts = encode(stage, x, present, []), encode(stage, x, present, cuts)
    torch.testing.assert_close(parts, whole, rtol=1e-11, atol=1e-11)
    towards = rows(*whole.shape, seed=3).detach()
    leaves = [x, *stage.parameters()]
    for a, b in zip(
        torch.autograd.grad(parts, leaves, towards, materialize_grads=True),
        torch.autograd.grad(whole, leaves, towards, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_detached_state_gives_the_same_values_without_earlier_gradients(stage: Time) -> None:
    x = rows(sum(map(len, CHANGING)), WIDTH)
    whole, parts = encode(stage, x, CHANGING, []), encode(stage, x, CHANGING, [4], cut_history=True)
    torch.testing.assert_close(parts, whole, rtol=1e-11, atol=1e-11)
    before = sum(map(len, CHANGING[:4]))
    (d_x,) = torch.autograd.grad(parts[before:].sum(), x)
    assert d_x[:before].eq(0).all()


def test_empty_windows_keep_the_state(stage: Time) -> None:
    x = rows(sum(map(len, CHANGING)), WIDTH)
    torch.testing.assert_close(
        encode(stage, x, CHANGING, [2, 2, 3]), encode(stage, x, CHANGING, []), rtol=1e-11, atol=1e-11
    )


def test_outputs_are_causal(stage: Time) -> None:
    x = rows(sum(map(len, CHANGING)), WIDTH)
    known = sum(map(len, CHANGING[:4]))
    changed = torch.cat([x[:known], x[known:] + 1])
    early = slice(0, known)
    assert torch.equal(encode(stage, x, CHANGING, [])[early], encode(stage, changed, CHANGING, [])[early])


def node_by_node(module: nn.Module, x: Tensor, sequences: Sequences, batch_first: bool) -> Tensor:
    """torch's own module on each node's cells as one sequence, with a causal mask."""
    out = torch.empty_like(x)
    for slot in range(sequences.num_slots):
        mine = torch.nonzero(sequences.slots == slot).flatten()
        if not len(mine):
            continue
        sequence = x[mine][None] if batch_first else x[mine][:, None]
        mask = torch.ones(len(mine), len(mine), dtype=torch.bool).triu(1)
        if isinstance(module, nn.MultiheadAttention):
            result = module(sequence, sequence, sequence, attn_mask=mask)[0]
        else:
            result = module(sequence, src_mask=mask)
        out[mine] = result.reshape(len(mine), WIDTH)
    return out


@pytest.mark.parametrize("name", [name for name in STAGES if name.startswith("t")])
@pytest.mark.parametrize("training", [True, False])
def test_time_stages_equal_torch_modules_on_each_sequence(name: str, training: bool) -> None:
    torch.manual_seed(0)
    module = STAGES[name]().double().train(training)
    attention = module if isinstance(module, nn.MultiheadAttention) else module.self_attn
    assert isinstance(attention, nn.MultiheadAttention)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    stage = as_time(module).train(training)
    sequences = sequences_of(CHANGING)
    x = rows(sequences.num_cells, WIDTH).detach()
    with torch.set_grad_enabled(training):
        expected = node_by_node(module, x, sequences, attention.batch_first)
        out, _ = stage.encode(x, None, sequences)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    if training:
        towards, leaves = rows(*out.shape, seed=3).detach(), list(module.parameters())
        for a, b in zip(
            torch.autograd.grad(out, leaves, towards), torch.autograd.grad(expected, leaves, towards), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["gru cell", "lstm cell"])
def test_recurrent_cells_equal_torch_step_by_step(name: str) -> None:
    torch.manual_seed(0)
    cell = STAGES[name]().double()
    sequences = sequences_of(CHANGING)
    x = rows(sequences.num_cells, WIDTH)
    out, _ = as_time(cell).encode(x, None, sequences)
    for slot in range(sequences.num_slots):
        state = None
        for row in torch.nonzero(sequences.slots == slot).flatten():
            state = cell(x[row][None], state)
            h = state[0] if isinstance(state, tuple) else state
            torch.testing.assert_close(out[row][None], h, rtol=1e-11, atol=1e-11)


def test_dropout_of_torch_modules_acts_in_training_only() -> None:
    stage = as_time(nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.5).double())
    attention = as_time(nn.MultiheadAttention(WIDTH, 2, dropout=0.5).double())
    sequences = sequences_of(CHANGING)
    x = rows(sequences.num_cells, WIDTH)
    for each in (stage, attention):
        assert not torch.equal(each.encode(x, None, sequences)[0], each.encode(x, None, sequences)[0])
        each.eval()
        assert torch.equal(each.encode(x, None, sequences)[0], each.encode(x, None, sequences)[0])


def test_wrapping_adds_no_parameters() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8)
    assert len(list(as_time(layer).parameters())) == len(list(layer.parameters()))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: nn.Linear(2, 2), "Linear is not a time stage"),
        (lambda: nn.GRU(2, 2, bidirectional=True), "read the future"),
        (lambda: nn.LSTM(4, 4, proj_size=2), "proj_size"),
        (lambda: nn.MultiheadAttention(4, 2, kdim=3), "kdim"),
        (lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True), "add_bias_kv"),
        (lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), "add_zero_attn"),
        (lambda: Attention(4, 3), "3 heads cannot share a width of 4"),
        (lambda: Attention(4, span=0), "span must be at least 1"),
        (lambda: Attention(4, positions=-1), "positions must be at least 0"),
        (lambda: TemporalLinear(4, 4, span=0), "span must be at least 1"),
    ],
)
def test_unsupported_modules_are_refused(module: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        as_time(module())
