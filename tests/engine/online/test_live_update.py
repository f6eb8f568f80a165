"""Online training on whole snapshots with carried states: the live update of ROLAND, against a plain loop of torch."""

from __future__ import annotations

import os
import random
import signal
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from strobe import placement
from strobe.api import train, train_online
from strobe.comm import SingleRankComm
from strobe.engine.checkpoint import store
from strobe.engine.evaluation.evaluate import score
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.online.loop import OnlineConfig, train_online_on_rank
from strobe.engine.online.result import OnlineResult
from strobe.engine.progress import Progress
from strobe.engine.sources.arriving import hash_uniform
from strobe.errors import OptionError
from strobe.graph import Degrees, DynamicGraph, from_edges
from strobe.graph.follow import follow
from strobe.models import MODELS, ROLAND
from strobe.models.roland import GRUUpdate, Message
from strobe.models.structure import GCN
from strobe.plan import Plan
from strobe.presets import preset
from strobe.tasks import LinkPrediction
from strobe.tasks.base import Examples
from tests.engine.online.test_trainer import Plug, StopError
from tests.support.dense import normalised
from tests.support.kills import forked, is_running
from tests.support.ranks import as_threads
from tests.support.runs import Noisy, same_tensors, small_graph

TASK = LinkPrediction(pair_features=False, from_history=False)
UPDATE: dict[str, Any] = {"steps_per_snapshot": 4, "validation_share": 0.3, "patience": 2, "reset_optimizer": True}
CHANGES: dict[str, Any] = {"window": 1, "fit_snapshots": 4, "threads": 1, "precision": "float64"}


def live(graph: DynamicGraph, model: Any = "roland", task: Any = TASK, **options: Any) -> OnlineResult:
    sizes = {"model_options": {"hidden": 4}} if isinstance(model, str) else {}
    return train_online(graph, model, task, plan="relay", **{**sizes, **CHANGES, **options})


class PlainROLAND:
    """ROLAND over dense matrices, with the weights of a model; ``states`` are those of all nodes, layer by layer."""

    def __init__(self, model: ROLAND, head: Any, graph: DynamicGraph) -> None:
        self.model, self.head, self.graph = model, head, graph
        self.states = [torch.zeros(graph.num_nodes, model.width, dtype=torch.float64) for _ in model.blocks]
        self.latest = torch.zeros(graph.num_nodes, model.width, dtype=torch.float64)
        self.is_seen = torch.zeros(graph.num_nodes, 1, dtype=torch.bool)

    def run(self, t: int) -> tuple[list[Tensor], Tensor, Tensor]:
        """States after snapshot t, latest embeddings, and which nodes have one."""
        snapshot = self.graph[t]
        nodes, (read, reader) = torch.from_numpy(snapshot.nodes.astype(np.int64)), snapshot.arcs()
        weight = np.ones(len(read)) if snapshot.weight is None else snapshot.weight
        arcs = list(zip(reader.tolist(), read.tolist(), weight.tolist(), strict=True))
        adjacency = torch.from_numpy(normalised("gcn", len(nodes), arcs))
        x = torch.relu(self.model.preprocess(torch.from_numpy(np.array(snapshot.x)).double()))
        states = []
        for block, state in zip(self.model.blocks, self.states, strict=True):
            message, update = block.structure, block.time
            assert isinstance(message, Message)
            assert isinstance(message.convolution, GCN)
            assert isinstance(update, GRUUpdate)
            assert message.convolution.bias is not None
            x, h = torch.relu(adjacency @ x @ message.convolution.weight.t() + message.convolution.bias), state[nodes]
            (wr, wz, wc), (ur, uz, uc) = update.of_input.chunk(3), update.of_state.chunk(3)
            br, bz, bc = update.bias.chunk(3)
            r, z = torch.sigmoid(x @ wr.t() + h @ ur.t() + br), torch.sigmoid(x @ wz.t() + h @ uz.t() + bz)
            x = z * h + (1 - z) * torch.tanh(x @ wc.t() + (r * h) @ uc.t() + bc)
            states.append(state.index_copy(0, nodes, x))
        return states, self.latest.index_copy(0, nodes, x), self.is_seen.index_fill(0, nodes, True)

    def scores(self, t: int, pairs: Examples) -> Tensor:
        _, latest, is_seen = self.run(t)
        assert pairs.edge_label_index is not None
        found: Tensor = self.head(torch.where(is_seen, latest, self.head.unseen), *pairs.edge_label_index)
        return found

    def advance(self, t: int) -> None:
        with torch.no_grad():
            self.states, self.latest, self.is_seen = self.run(t)


def split(pairs: Examples, seed: int, t: int, share: float, *, directed: bool) -> tuple[Examples, Examples]:
    """Training and validation pairs: a positive and its negatives stay together."""
    assert pairs.edge_label_index is not None
    chosen: tuple[list[int], list[int]] = ([], [])
    part = 0
    for k, (u, v) in enumerate(pairs.edge_label_index.t().tolist()):
        if pairs.labels[k] > 0:
            ends = (u, v) if directed else (min(u, v), max(u, v))
            part = int(hash_uniform((seed, t), *(np.array([end]) for end in ends))[0] < share)
        chosen[part].append(k)
    train, validation = (pairs.select(torch.tensor(index, dtype=torch.int64)) for index in chosen)
    return train, validation


def plain_live_update(
    graph: DynamicGraph, model: ROLAND, head: nn.Module, options: dict[str, Any]
) -> list[tuple[float, float]]:
    """Average precision of every snapshot from the fourth on and its lowest validation loss, by a plain loop."""
    whole = TASK.bind(graph, state=TASK.bind(graph[:4]).state())
    plain, found = PlainROLAND(model, head, whole.graph), []
    starts: list[PlainROLAND] = []  # of all snapshots so far
    parameters = [*model.parameters(), *head.parameters()]

    def mean_loss(t: int, pairs: Examples, start: PlainROLAND = plain) -> Tensor:
        labels = pairs.labels.double()
        return nn.functional.binary_cross_entropy_with_logits(start.scores(t, pairs), labels)

    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for t in range(len(graph) - 1):
        problem = whole.with_online_split(t)
        scored = problem.examples(t)
        assert scored is not None
        with torch.no_grad():
            metrics = problem.metrics([plain.scores(t, scored)], [scored])
        if options["reset_optimizer"]:
            optimizer = torch.optim.Adam(parameters, lr=0.01)
        best, best_weights, since = float("inf"), [each.detach().clone() for each in parameters], 0
        for step in range(options["steps_per_snapshot"] + 1):
            parts = [problem.examples(t, epoch) for epoch in (step, 0)]
            assert parts[0] is not None
            assert parts[1] is not None
            training, validation = (
                split(pairs, 0, t, options["validation_share"], directed=graph.directed)[k]
                for k, pairs in enumerate(each for each in parts if each is not None)
            )
            with torch.no_grad():
                loss = float(mean_loss(t, validation)) if len(validation) else -float(step)
            since += 1
            if loss < best:
                best, best_weights, since = loss, [each.detach().clone() for each in parameters], 0
            if (options["patience"] and since >= options["patience"]) or step == options["steps_per_snapshot"]:
                break
            optimizer.zero_grad()
            losses, size = [mean_loss(t, training) * len(training)], len(training)
            for past in range(max(t - options.get("replay_memory", 0), 0), t):
                pairs = problem.examples(past, step + options["steps_per_snapshot"] * (t - past))
                assert pairs is not None
                pairs = split(pairs, 0, past, options["validation_share"], directed=graph.directed)[0]
                losses.append(mean_loss(past, pairs, starts[past]) * len(pairs))
                size += len(pairs)
            (sum(losses, torch.zeros(())) / size).backward()
            optimizer.step()
        with torch.no_grad():
            for parameter, value in zip(parameters, best_weights, strict=True):
                parameter.copy_(value)
        starts.append(copy(plain))
        plain.advance(t)
        found.append((metrics["ap"], best))
    return found


@pytest.mark.parametrize(
    "options",
    [
        UPDATE,
        UPDATE | {"patience": 0, "steps_per_snapshot": 3, "reset_optimizer": False},
        {"steps_per_snapshot": 3, "validation_share": 0.0, "reset_optimizer": True},
        {"steps_per_snapshot": 1, "validation_share": 0.0, "reset_optimizer": False},
        UPDATE | {"replay": 2, "replay_memory": 2},
    ],
    ids=["patience", "all steps, best weights", "all steps, last weights", "one step", "replay of the latest two"],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_live_update_equals_a_plain_loop(options: dict[str, Any], layers: int) -> None:
    graph = small_graph()
    model_options = {"hidden": 4, "layers": layers}
    started = train(graph, "roland", TASK, model_options=model_options, epochs=1, lr=1e-30, precision="float64")
    model, head = started.model, started.head  # the initial weights: a step of 1e-30 changes none
    assert isinstance(model, ROLAND)
    found = live(graph, model_options=model_options, **options)
    expected = plain_live_update(graph, model, head, {"patience": 0} | options)
    torch.testing.assert_close(found.weights["model"], dict(model.state_dict()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.weights["head"], dict(head.state_dict()), rtol=1e-9, atol=1e-12)
    lines = found.history
    assert len(lines) == len(expected) == 9
    assert [line["validation"]["ap"] for line in lines[3:]] == pytest.approx([ap for ap, _ in expected[3:]], rel=1e-9)
    if options["validation_share"]:
        assert [line["validation_loss"] for line in lines] == pytest.approx([loss for _, loss in expected], rel=1e-9)


def test_patience_ends_the_steps_and_the_best_weights_stay() -> None:
    lines = live(small_graph(), **UPDATE).history
    steps = np.diff([0, *(line["step"] for line in lines)])
    assert len(set(steps.tolist())) > 1
    for line, taken in zip(lines, steps.tolist(), strict=True):
        assert taken == 4 or taken - line["best_step"] == UPDATE["patience"]
    every = live(small_graph(), **UPDATE | {"patience": 0}).history
    assert np.diff([0, *(line["step"] for line in every)]).tolist() == [4] * 9


def changed_after(graph: DynamicGraph, t: int) -> DynamicGraph:
    """The same graph up to snapshot t; the edges of later snapshots lead elsewhere."""
    edges = []
    for snapshot in graph:
        src, dst, _ = snapshot.edges()
        edges.append(np.stack([src, dst if snapshot.t <= t else np.roll(dst, 1)]))
    nodes = [snapshot.nodes for snapshot in graph]
    made = from_edges(edges, num_nodes=graph.num_nodes, nodes=nodes, directed=graph.directed, parallel="count")
    return made.with_features(Degrees(log=True))


@pytest.mark.parametrize("task", [TASK, LinkPrediction()], ids=["embeddings", "history"])
def test_later_snapshots_change_no_score(task: LinkPrediction) -> None:
    before = live(changed_after(small_graph(), 10), task=task, **UPDATE).history
    for t in (4, 6):
        after = live(changed_after(small_graph(), t + 1), task=task, **UPDATE).history
        for name in ("validation", "baselines", "loss", "step", "validation_loss"):
            assert [line.get(name) for line in after[: t + 1]] == [line.get(name) for line in before[: t + 1]]
        assert after[t + 1]["validation"] != before[t + 1]["validation"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", ["link-prediction", "regression", "classification"])
def test_every_model_runs(model: str, task: str) -> None:
    found = live(small_graph(), model, task, precision="float32", **UPDATE)
    scored = found.evaluated
    assert len(scored) == 6 if task != "classification" else scored
    assert all(np.isfinite(value) for line in scored for value in line["validation"].values())


@pytest.mark.parametrize("model", [name for name in MODELS if name != "mpnn-lstm"])  # its moments follow the snapshots
def test_states_are_carried_as_in_one_pass(model: str) -> None:
    """Without a step that changes weights, predictions are those of a pass over all snapshots at once."""
    graph = small_graph()
    found = live(graph, model, "regression", lr=1e-30)
    run = train(graph, model, "regression", lr=1e-30, epochs=1, fit_snapshots=4, precision="float64",
                model_options={"hidden": 4})  # fmt: skip
    for t in range(3, 9):
        run.job.problem.split = run.problem.with_online_split(t).split
        part = range(t, t + 1)
        expected = score(run.model, run.head, run.job, run.job.evaluation_windows(part), part)
        assert found.history[t]["validation"] == pytest.approx(expected, rel=1e-9)


def growing_graph() -> DynamicGraph:
    """Three new nodes in every snapshot; older ones come and go."""
    drawn = np.random.default_rng(0)
    edges = [drawn.integers(0, 8 + 3 * t, (2, 30)) for t in range(9)]
    return from_edges(edges, directed=True, parallel="count").with_features(Degrees(log=True))


def followed(graph: DynamicGraph, out: Path, model: Any, **options: Any) -> OnlineResult:
    config = OnlineConfig(open_source=lambda into: follow(graph, into=into), poll_s=0.01)
    task = LinkPrediction(candidates="seen")
    sizes = {"model_options": {"hidden": 4}} if isinstance(model, str) else {}
    return train_online(config, model, task, out=out, plan="relay", **{**sizes, **CHANGES, **UPDATE, **options})


@pytest.mark.parametrize("model", ["roland", "gconv-gru", "evolvegcn-h", "mpnn-lstm", "dysat"])
def test_states_keep_their_nodes_when_new_nodes_arrive(model: str, tmp_path: Path) -> None:
    """A graph whose nodes are all known from the beginning gives the same."""
    graph = growing_graph()
    grown = followed(graph, tmp_path / "run", model, replay=2)
    known = live(graph, model, LinkPrediction(candidates="seen"), replay=2, **UPDATE)
    assert [line["validation_loss"] for line in grown.history] == pytest.approx(
        [line["validation_loss"] for line in known.history], rel=1e-9
    )
    torch.testing.assert_close(grown.weights["model"], known.weights["model"], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph()
    for model in ("roland", "dysat", Noisy):
        whole = live(graph, model, **UPDATE)
        for number, every_s in enumerate((0.0, 1e9)):  # it saves after each snapshot, or never but at the end
            monkeypatch.setattr(store, "SAVE_EVERY_S", every_s)
            out, after, stops = tmp_path / f"{getattr(model, '__name__', model)}-{number}", random.Random(number), 0
            while True:
                try:
                    plug = Plug(after.randint(8, 30))
                    found = live(graph, model, out=out, resume=stops > 0, progress=plug, **UPDATE)
                    break
                except StopError:
                    stops += 1
                    if every_s and stops == 2:
                        monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
            assert stops >= 1
            assert found.metrics == whole.metrics
            assert [line["loss"] for line in found.history] == [line["loss"] for line in whole.history]
            assert same_tensors(dict(found.weights["model"]), dict(whole.weights["model"]))


def test_a_killed_run_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SAVE_EVERY_S", 0.0)
    graph, out, drawn = small_graph(), tmp_path / "killed", random.Random(1)
    lines = out / "record.jsonl"
    for resume in (False, True):
        begun = len(lines.read_bytes()) if resume else 0
        child = forked(partial(live, graph, out=out, resume=resume, **UPDATE))
        while is_running(child) and not (lines.exists() and len(lines.read_bytes()) > begun + 500):
            sleep(0.002)
        sleep(drawn.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found, whole = live(graph, out=out, resume=True, **UPDATE), live(graph, **UPDATE)
    assert [line["validation_loss"] for line in found.history] == [line["validation_loss"] for line in whole.history]
    assert found.metrics == whole.metrics
    assert same_tensors(dict(found.weights["model"]), dict(whole.weights["model"]))


def request_of(model: str, task: Any, chosen: placement.Placement, **options: Any) -> TrainRequest:
    plan = replace(preset("relay", size=1), placement=chosen)
    settings = CHANGES | UPDATE | {"optimizer": "sgd", "lr": 0.1} | options
    return TrainRequest(None, model, task, {"hidden": 4}, None, settings, None, plan)


def on_ranks(request: TrainRequest, graph: DynamicGraph, num_ranks: int, out: OutputConfig) -> OnlineResult:
    config = OnlineConfig(graph=graph)
    if num_ranks == 1:
        return train_online_on_rank(config, request, out, Progress(), SingleRankComm())
    return as_threads(lambda comm: train_online_on_rank(config, request, out, Progress(), comm), num_ranks)[0]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["roland", "gconv-gru", "evolvegcn-h", "mpnn-lstm", "dysat"])
def test_ranks_train_as_one_does(model: str) -> None:
    cases: list[tuple[DynamicGraph, Any, placement.Placement, int]] = [
        (small_graph(), "regression", placement.Greedy(), 3),
        (growing_graph(), LinkPrediction(candidates="seen"), placement.Hash(), 2),
    ]
    for graph, task, chosen, num_ranks in cases:
        request = request_of(model, task, chosen, steps_per_snapshot=2, replay=1)
        alone, shared = (on_ranks(request, graph, number, OutputConfig()) for number in (1, num_ranks))
        losses, expected = ([line["validation_loss"] for line in each.history] for each in (shared, alone))
        assert losses == pytest.approx(expected, rel=1e-8)
        assert shared.metrics == pytest.approx(alone.metrics, rel=1e-8)
        torch.testing.assert_close(shared.weights["model"], alone.weights["model"], rtol=1e-7, atol=1e-10)


def test_several_ranks_resume_with_their_states(tmp_path: Path) -> None:
    graph = small_graph()
    request = request_of("roland", "regression", placement.Hash(), replay=1, replay_memory=3)
    whole, out = on_ranks(request, graph, 2, OutputConfig()), tmp_path / "run"
    config = OnlineConfig(graph=graph, snapshots=5)
    as_threads(lambda comm: train_online_on_rank(config, request, OutputConfig(out), Progress(), comm), 2)
    with pytest.raises(OptionError, match="are on 2 ranks: resume it with as many"):
        train_online(graph, None, out=out, resume=True)
    found = on_ranks(TrainRequest(), graph, 2, OutputConfig(out, resume=True))
    assert [line["loss"] for line in found.history] == [line["loss"] for line in whole.history]
    assert same_tensors(dict(found.weights["model"]), dict(whole.weights["model"]))


def test_a_replayed_graph_must_be_the_same_when_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = OnlineConfig(graph=small_graph(), snapshots=5)
    options: dict[str, Any] = {"model_options": {"hidden": 4}, **CHANGES}
    train_online(config, "roland", TASK, out=out, plan="relay", **options)
    with pytest.raises(OptionError, match="cannot go on as something else: graph"):
        train_online(small_graph(1), None, out=out, resume=True)
    assert len(train_online(small_graph(), None, out=out, resume=True).history) == 9
    followed(small_graph(), tmp_path / "source", "roland")
    with pytest.raises(OptionError, match="has the graph of a source"):
        live(small_graph(), out=tmp_path / "source", overwrite=True)


def refused(match: str, plan: Plan | str | None = "relay", **options: Any) -> None:
    chosen = {name: value for name, value in (CHANGES | options).items() if value is not None}
    with pytest.raises(OptionError, match=match):
        train_online(small_graph(), "roland", TASK, plan=plan, **chosen)


def test_impossible_updates_are_refused(tmp_path: Path) -> None:
    refused("or windows of 1 snapshot", window=2)
    refused("or windows of 1 snapshot", window=None)
    refused("steps of a whole snapshot", "distdy", window=None, steps_per_snapshot=2)
    refused("steps of a whole snapshot", "distdy", window=None, validation_share=0.1)
    refused("steps of a whole snapshot", "distdy", window=None, replay=1)
    refused("of 1 snapshot where snapshots arrive", "distdy", window=None)
    refused("steps_per_snapshot must be at least 1", steps_per_snapshot=0)
    refused("validation_share must be at least 0 and less than 1", validation_share=1.0)
    refused("give validation_share", patience=3)
    refused("give replay", replay_memory=3)
    refused("larger replay_memory", replay=4, replay_memory=3)
    refused("leave out eval_history", eval_history="all")
    refused("offload is for windows that are kept", offload="always")
    refused("precision bf16 is for windows that are kept", precision="bf16")
    with pytest.raises(OptionError, match="moves nodes between ranks"):
        on_ranks(request_of("roland", TASK, placement.Online()), small_graph(), 2, OutputConfig())
    with pytest.raises(OptionError, match="open_source or graph"):
        OnlineConfig()
    with pytest.raises(OptionError, match="needs a run directory"):
        train_online(OnlineConfig(open_source=lambda into: follow(small_graph(), into=into)), "roland", TASK)
    only_online: list[dict[str, Any]] = [
        {"steps_per_snapshot": 2},
        {"validation_share": 0.1},
        {"reset_optimizer": True},
        {"replay": 1},
    ]
    for options in only_online:
        with pytest.raises(OptionError, match=f"{next(iter(options))} is for snapshots that arrive"):
            train(small_graph(), "roland", TASK, epochs=1, **options)
    assert not list(tmp_path.iterdir())
