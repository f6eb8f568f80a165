"""The training loop: for epoch, for step, forward, backward, synchronize, step; evaluate; log; save.

Every rank runs it on its own cells. What differs between systems comes through the contracts of the axes:
``StepSource`` and ``EpochPolicy`` (batching), ``Pacer`` (schedule), ``GradientSync`` (sync), ``ExchangeSession``
(exchange) and ``Evaluator``.
"""

from __future__ import annotations

import math
from contextlib import closing
from time import perf_counter
from typing import Any

from torch import Tensor

from strobe.batching.base import EpochResult, StepResult
from strobe.comm.ledger import STEP_SYNC
from strobe.engine.context import RunContext
from strobe.engine.forward import detach_tree, num_examples, window_examples, window_loss
from strobe.engine.settings import DivergedError
from strobe.engine.windows import Window
from strobe.schedule.base import Totals
from strobe.view import Carry


def fit(run: RunContext) -> None:
    """Train until ``epochs``, or until ``patience`` evaluations in a row have brought no improvement."""
    state, settings = run.state, run.settings
    run.source.start()
    with closing(run.source), closing(run.evaluator):
        run.evaluator.before_training()
        run.announce()
        while state.epoch < settings.epochs and not state.should_stop(settings.patience):
            started = perf_counter()
            run.exchange.begin_epoch([line["loss"] for line in state.history])
            result = run.policy.run(lambda: train_epoch(run))
            trained = perf_counter()
            state.epoch += 1
            line = run.new_line(result) | run.evaluator.after_epoch(result)
            if not state.is_finite():
                raise DivergedError("a weight of the model", state.epoch, settings)
            run.end_epoch(line, train_s=trained - started, evaluate_s=perf_counter() - trained)
        run.evaluator.finish()
        run.sync.close()
        run.save(now=True)


def train_epoch(run: RunContext) -> EpochResult:
    """One pass over this rank's steps: their number, and the mean loss of all examples, each before its step."""
    run.state.model.train()
    run.state.head.train()
    carry: Carry | None = None
    totals, number, epoch = Totals(), 0, run.state.epoch
    run.sync.begin_epoch()
    for number, step in enumerate(run.source.epoch(epoch, run.pacer), 1):
        run.ledger.at(epoch + 1, number)
        result, carry = train_step(run, step, carry, epoch)
        if not math.isfinite(result.loss):
            raise DivergedError("the loss", epoch + 1, run.settings)
        totals = Totals(totals.loss + result.loss, totals.num_examples + result.num_examples)
        run.source.observe(result, run.pacer)
        run.progress.step(epoch + 1, number)
    with run.ledger.phase("sync"):
        run.sync.end_epoch()
        totals = run.pacer.end_epoch(totals, run.state.model)
    return EpochResult(number, totals.mean)


def train_step(
    run: RunContext, step: dict[int, Window], carry: Carry | None, epoch: int
) -> tuple[StepResult, Carry | None]:
    """Forward and backward over this rank's windows of a step, then one optimizer step.

    The loss is a sum, divided by the examples that the pacer counts, so that gradients of ranks in lockstep add up to
    that of the mean. States are carried to the next window, gradients are not: truncated backpropagation through time.
    """
    ledger, state, began = run.ledger, run.state, perf_counter()
    with ledger.phase("examples"):
        examples = {batch: _examples(run, batch, window, epoch) for batch, window in step.items()}
        counting = perf_counter()
        count = run.pacer.count(sum(num_examples(each) for each in examples.values()))
        ledger.record_batch_span(STEP_SYNC, counting)
    total: Tensor | float = 0.0
    for number, (batch, window) in enumerate(step.items(), 1):
        batch_began = perf_counter()
        with ledger.phase("forward"):
            loss, carry = window_loss(state.model, state.head, run.problem, window, carry, examples[batch])
        carry = detach_tree(carry)
        for segment in window:
            ledger.count(cells=segment.data.num_cells, arcs=segment.data.num_arcs)
        total = total + loss.detach()
        if count:
            with ledger.phase("backward"):
                run.sync.backward(loss, divisor=count, last=number == len(step))
        ledger.record_batch_span(batch, batch_began)
    syncing = perf_counter()
    with ledger.phase("sync"):
        if count:
            run.sync.step(state.optimizer, max_grad_norm=run.settings.clip, contributed=bool(step))
            if not run.source.ranks_share_cells:
                run.pacer.after_step(state.model)
        else:
            run.sync.skip_step()
        run.comm.wait_sends()
        loss_sum = run.pacer.loss(total) if count else 0.0  # the only wait for the device in a step
    ledger.record_batch_span(STEP_SYNC, syncing)
    return StepResult(loss_sum, count, perf_counter() - began), carry


def _examples(run: RunContext, batch: int, window: Window, epoch: int) -> list[Any]:
    """Training examples of a window. If they are resampled every epoch, building them counts as part of the batch."""
    began = perf_counter()
    examples = window_examples(run.problem, window, epoch)
    if run.problem.resamples_each_epoch:
        run.ledger.record_batch_span(batch, began)
    return list(examples)
