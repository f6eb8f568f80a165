"""What the published MRR of ROLAND's fixed split owes to ties.

The authors rank with ``np.flip(probabilities.argsort())`` over probabilities in float32, positives first in the array.
Their learning rate of 0.3 leaves many logits so large that probabilities are exactly 1 or 0, and numpy's unstable sort
moves the first entries of a long run of equal ones away from its beginning: a positive that is tied with hundreds of
negatives often gets rank 1. This trains their model as they do, and scores the same outputs by their order, by that of
numpy up to 1.24, which they used, and by the expected 1 / rank over all orders of ties.

    python -m benchmarks.tied_ranks [--device cuda]
"""

from __future__ import annotations

import copy
import csv
import gzip
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.record import Record, option_parser, table
from benchmarks.tied_model import HIDDEN, PublishedROLAND
from strobe.ops.runtime.njit import cached_njit

SECONDS = 1_200_000
SEEDS = (1, 2, 3)
FILES = {"bitcoin_otc": "soc-sign-bitcoinotc.csv.gz", "bitcoin_alpha": "soc-sign-bitcoinalpha.csv.gz"}
LAYERS = {"bitcoin_otc": 4, "bitcoin_alpha": 2}
FIRST_TEST = {"bitcoin_otc": 110, "bitcoin_alpha": 109}
"""The authors' ``layers_mp`` and ``start_compute_mrr``."""
LR, WEIGHT_DECAY, EPOCHS, TOLERANCE = 0.3, 5e-4, 100, 5
FIGURES = {"bitcoin_otc": "otc", "bitcoin_alpha": "alpha"}
RULES = ("authors_order", "installed_numpy_order", "expected_probability", "expected_logit")


@dataclass(frozen=True)
class Snapshots:
    """Edges [2, E], both directions of each, and their rating and time, [E, 2], by periods since 1970."""

    edges: list[Tensor]
    features: list[Tensor]
    num_nodes: int


def read(name: str, folder: Path, device: str) -> Snapshots:
    """Read a data set as the authors do."""
    with gzip.open(folder / name / FILES[name], "rt") as file:
        rows = np.array([[float(x) for x in row] for row in csv.reader(file) if row[0][0] != "#"])
    nodes, ends = np.unique(rows[:, :2].astype(int), return_inverse=True)
    src, dst = ends.reshape(-1, 2).T
    time = np.trunc(rows[:, 3])
    scaled = 2 * (time - time.min()) / (time.max() - time.min())
    features = np.tile(np.stack([rows[:, 2], scaled], 1), (2, 1)).astype(np.float32)
    edges = np.stack([np.concatenate([src, dst]), np.concatenate([dst, src])])
    period = np.floor_divide(np.tile(time, 2).astype(np.float32), np.float32(SECONDS))
    chosen = [np.flatnonzero(period == each) for each in np.unique(period)]
    return Snapshots(
        [torch.from_numpy(edges[:, each]).to(device) for each in chosen],
        [torch.from_numpy(features[each]).to(device) for each in chosen],
        len(nodes),
    )


@cached_njit
def argsort_of_old_numpy(values: Any) -> Any:
    """numpy's quicksort of indices up to version 1.24: median of three, insertion sort of 17 and fewer."""
    order = np.arange(len(values))
    stack, size = np.empty((100, 2), np.int64), 1
    stack[0, 0], stack[0, 1] = 0, len(values) - 1
    while size:
        size -= 1
        low, high = stack[size]
        while high - low > 16:
            middle = low + ((high - low) >> 1)
            if values[order[middle]] < values[order[low]]:
                order[middle], order[low] = order[low], order[middle]
            if values[order[high]] < values[order[middle]]:
                order[high], order[middle] = order[middle], order[high]
            if values[order[middle]] < values[order[low]]:
                order[middle], order[low] = order[low], order[middle]
            pivot, i, j = values[order[middle]], low, high - 1
            order[middle], order[j] = order[j], order[middle]
            while True:
                i += 1
                while values[order[i]] < pivot:
                    i += 1
                j -= 1
                while pivot < values[order[j]]:
                    j -= 1
                if i >= j:
                    break
                order[i], order[j] = order[j], order[i]
            order[i], order[high - 1] = order[high - 1], order[i]
            if i - low < high - i:  # the larger part waits
                stack[size, 0], stack[size, 1], high = i + 1, high, i - 1
            else:
                stack[size, 0], stack[size, 1], low = low, i - 1, i + 1
            size += 1
        for i in range(low + 1, high + 1):
            moved, j = order[i], i
            while j > low and values[moved] < values[order[j - 1]]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = moved
    return order


def mrr_of_order(order: Any, positives: int) -> float:
    """The mean 1 / rank of the first entries in ascending order of scores, the last one first."""
    rank = np.empty(len(order))
    rank[order[::-1]] = np.arange(1, len(order) + 1)
    return float((1 / rank[:positives]).mean())


def expected_mrr(scores: Any, positives: int) -> float:
    """The same, on average over all orders of equal scores."""
    own = scores[:positives, None]
    higher, equal = (scores > own).sum(1), (scores == own).sum(1)
    sums = np.concatenate([[0], np.cumsum(1 / np.arange(1, len(scores) + 1))])
    return float(((sums[higher + equal] - sums[higher]) / equal).mean())


@torch.no_grad()
def score(model: PublishedROLAND, x: Tensor, target: Tensor) -> list[float]:
    """The mean over sources by each of ``RULES``, and of negatives whose probability equals the first positive's."""
    ends, found = target.cpu().numpy(), []
    for source in np.unique(ends[0]):
        positive = ends[1, ends[0] == source]
        order = np.concatenate([positive, np.setdiff1d(np.arange(len(x)), positive)])
        logits = model.all_logits(x, torch.tensor(source, device=x.device)).cpu()[order]
        probability, n = torch.sigmoid(logits).numpy(), len(positive)
        by_order = [mrr_of_order(sort(probability), n) for sort in (argsort_of_old_numpy, np.argsort)]
        expected = [expected_mrr(each, n) for each in (probability, logits.numpy())]
        found.append([*by_order, *expected, float((probability[n:] == probability[0]).sum())])
    means: list[float] = np.mean(found, 0).tolist()
    return means


def sample(target: Tensor, num_nodes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The positives of a snapshot and as many pairs without an edge, and their labels."""
    known = torch.unique(target[0] * num_nodes + target[1])
    keys = torch.randint(num_nodes**2, (2 * target.shape[1],), generator=generator, device=target.device)
    keys = keys[~torch.isin(keys, known)][: target.shape[1]]
    labels = torch.cat([torch.ones(target.shape[1]), torch.zeros(len(keys))]).to(target.device)
    return torch.cat([target, torch.stack([keys // num_nodes, keys % num_nodes])], 1), labels


def learn(
    model: PublishedROLAND, data: Snapshots, t: int, states: list[Tensor], generator: torch.Generator, steps: int
) -> None:
    """Train on a snapshot until the loss of its own edges has not fallen for ``TOLERANCE`` steps; the best weights
    stay."""
    edges, features, target = data.edges[t], data.features[t], data.edges[t + 1]

    def loss() -> Tensor:
        pairs, labels = sample(target, data.num_nodes, generator)
        x, _ = model.embed(edges, features, states)
        return nn.functional.binary_cross_entropy_with_logits(model.logits(x, pairs), labels)

    optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    best, kept, since = math.inf, copy.deepcopy(model.state_dict()), 0
    for _ in range(steps + 1):
        model.eval()
        with torch.no_grad():
            validation = float(loss())
        since += 1
        if validation < best:
            best, kept, since = validation, copy.deepcopy(model.state_dict()), 0
        if since >= TOLERANCE:
            break
        model.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()
    model.load_state_dict(kept)


def run(name: str, seed: int, folder: Path, device: str, snapshots: int | None = None) -> dict[str, Any]:
    """Score each snapshot of the test part, or each of the first ``snapshots``, before training on it."""
    torch.manual_seed(seed)
    generator, began = torch.Generator(device).manual_seed(seed), perf_counter()
    data, model, means = read(name, folder, device), PublishedROLAND(LAYERS[name]).to(device), []
    states = [torch.zeros(data.num_nodes, HIDDEN, device=device) for _ in model.layers]
    for t in range(len(data.edges) - 1 if snapshots is None else snapshots):
        model.eval()
        if t >= FIRST_TEST[name] or snapshots is not None:
            with torch.no_grad():
                means.append(score(model, model.embed(data.edges[t], data.features[t], states)[0], data.edges[t + 1]))
        learn(model, data, t, states, generator, EPOCHS if snapshots is None else 3)
        with torch.no_grad():
            states = model.embed(data.edges[t], data.features[t], states)[1]
    return {
        "data": name,
        "seed": seed,
        "snapshots": len(means),
        **dict(zip((*RULES, "tied_negatives"), np.mean(means, 0).tolist(), strict=True)),
        "seconds": perf_counter() - began,
    }


def main() -> None:
    """Run both data sets with three seeds and print the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("STROBE_DATA", ".")))
    chosen = parser.parse_args()
    record = Record("tied_ranks", chosen.quick)
    sets, seeds = (("bitcoin_alpha",), SEEDS[:1]) if chosen.quick else (tuple(FILES), SEEDS)
    snapshots = 2 if chosen.quick else None
    found = [run(name, seed, chosen.data_dir, chosen.device, snapshots) for name in sets for seed in seeds]
    record.samples = {f"{each['data']} {each['seed']}": each for each in found}
    rows = []
    for name in sets:
        values = {rule: [each[rule] for each in found if each["data"] == name] for rule in RULES}
        for rule in RULES:
            record.figures[f"{rule}_{FIGURES[name]}"] = statistics.fmean(values[rule])
        rows.append([name, *(f"{statistics.fmean(values[rule]):.4f}" for rule in RULES)])
    table(["data set", *RULES], rows)
    record.write(chosen.json)


if __name__ == "__main__":
    main()
