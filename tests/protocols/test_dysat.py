from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strobe.errors import UnknownNameError
from strobe.models import MODELS
from strobe.protocols import ProtocolRequest, ProtocolResult, find_protocol, list_protocols
from strobe.protocols.dysat import DYSAT, WITH_PAIR_FEATURES, LinkSteps, ModelRun
from strobe.protocols.link_scores import BASELINES, FITTED
from strobe.protocols.model_names import MODEL_NAMES
from strobe.protocols.step_embeddings import EmbeddingSettings, with_node_inputs
from tests.protocols.link_files import load_links, random_links, write_links

SHARED = Path(os.environ.get("STROBE_DATA") or Path(__file__).parents[3] / "shared" / "data")

SMALL = EmbeddingSettings(hidden=8, epochs=4, evaluate_every=2)


def test_the_protocol_is_registered_with_its_published_rows() -> None:
    assert find_protocol("dysat") is DYSAT
    assert DYSAT in list_protocols()
    assert [row.test for name in DYSAT.data_sets for row in DYSAT.published(name)] == [0.857, 0.810]


def test_every_model_of_strobe_is_listed() -> None:
    assert set(MODEL_NAMES) == set(MODELS)
    assert DYSAT.models[0] == "dysat"
    assert {*MODELS, *(name + WITH_PAIR_FEATURES for name in MODELS), *BASELINES, *FITTED} == set(DYSAT.models)
    with pytest.raises(UnknownNameError):
        DYSAT.run(ProtocolRequest(model="dysat+pairs"))


@pytest.mark.parametrize("model", ["dysat", "dysat" + WITH_PAIR_FEATURES, "gcn"])
def test_a_run_has_auc_of_every_seed_and_step(tmp_path: Path, model: str) -> None:
    folder, stages = write_links(tmp_path, random_links(0)), set()
    request = ProtocolRequest(
        model=model, seeds=2, epochs=2, data_dir=folder, on_stage=lambda stage, done, total: stages.add(stage)
    )
    result = DYSAT.run(request)
    assert (result.method, result.seeds, result.settings["steps"]) == (model, (0, 1), 4)
    assert {stage for stage in stages if "seed" in stage} == {
        f"training, seed {seed} of 2: epochs of all steps" for seed in (1, 2)
    }
    for part, micro in (("validation", result.validation), ("test", result.test)):
        per_step = result.settings["auc_per_step"][part]
        assert np.shape(per_step) == (2, 4)
        assert result.settings["macro_auc"][part] == pytest.approx(np.mean(per_step, axis=1))
        assert all(0 <= value <= 1 for value in micro)
    assert ProtocolResult.from_json(result.to_json()) == replace(result, settings=dict(result.settings))
    assert DYSAT.run(request).test == result.test


def test_baselines_and_models_are_scored_on_the_same_links(tmp_path: Path) -> None:
    request = ProtocolRequest(data_dir=write_links(tmp_path, random_links(1)), epochs=1, seeds=1)
    baselines, result = DYSAT.run_baselines(request), DYSAT.run(request)
    assert [each.method for each in baselines] == [*BASELINES, *FITTED]
    assert all(each.settings["links"] == result.settings["links"] for each in baselines)
    one = DYSAT.run(replace(request, model="edgebank"))
    assert one.test == baselines[0].test


@pytest.mark.parametrize("model", MODELS)
def test_later_snapshots_change_no_earlier_step(tmp_path: Path, model: str) -> None:
    """Step t reads snapshots up to t and is scored on t + 1; all after t + 1 may be anything."""
    links = random_links(2)
    other = [*links[:3], *(each[::-1, ::-1].copy() for each in random_links(9)[3:])]
    found = []
    for number, each in enumerate((links, other)):
        run = ModelRun(
            links=LinkSteps(load_links(tmp_path / str(number), each)), model=model, settings=SMALL, pair_features=True
        )
        found.append([best for _, best in zip(range(2), run.score(0), strict=False)])
    for one, same in zip(*found, strict=True):
        assert one.epoch == same.epoch
        for part in ("validation", "test"):
            assert np.array_equal(one.scores[part], same.scores[part])


def test_later_snapshots_change_no_earlier_baseline(tmp_path: Path) -> None:
    links = random_links(3)
    one, other = (
        LinkSteps(load_links(tmp_path / name, each)).score_baselines()
        for name, each in (("a", links), ("b", [*links[:3], *random_links(8)[3:]]))
    )
    for name in one:
        for t in range(2):
            assert np.array_equal(one[name][t]["test"], other[name][t]["test"])


def test_inputs_are_activity_and_the_id_of_the_node(tmp_path: Path) -> None:
    graph = load_links(tmp_path, random_links(4))
    inputs = with_node_inputs(graph, 0.5)
    assert inputs.features is not None
    rows = inputs.features.rows(inputs[2])
    size = rows.shape[1] - graph.num_nodes
    assert np.array_equal(rows[:, size:], 0.5 * np.eye(graph.num_nodes)[graph[2].nodes])
    without = with_node_inputs(graph, 0.0).features
    assert without is not None
    assert np.array_equal(without.rows(graph[2]), rows[:, :size])


@pytest.mark.skipif(not (SHARED / "enron_dysat").is_dir(), reason="the data set is not there")
def test_test_links_of_enron_are_as_many_as_in_the_authors_logs() -> None:
    """Their logs have AUC in steps of 1 / 100 and 1 / 144 at the first two steps: 10 and 12 test links."""
    steps = DYSAT.read(ProtocolRequest(data_dir=SHARED)).steps
    assert [int(step["test"].labels.sum()) for step in steps[:2]] == [10, 12]
    assert [int(step["validation"].labels.sum()) for step in steps[:2]] == [3, 4]
    assert len(steps) == 15
