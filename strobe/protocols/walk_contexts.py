"""Random-walk contexts of the nodes of a snapshot (DySAT's training pairs), sampled without storing walks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from strobe.graph import Snapshot

IntArray = npt.NDArray[np.int64]

WALK_STEPS = 10
"""Window of the authors' random walks."""


@dataclass(frozen=True, eq=False)
class WalkContexts:
    """Distribution of the context of every node with links in a snapshot.

    A context is the node that a random walk from the node reaches after k steps, k uniform in 1..10, other than the
    node itself; a walk follows links in proportion to their weights. The authors store all pairs within 10 steps in 10
    walks of 20 nodes from each node; here the distribution is computed once, and each epoch draws from it.

    Attributes:
        nodes: positions in the snapshot of nodes with contexts, [n].
        columns: positions in the snapshot of nodes that can be contexts, [m].
        cumulative: for row i the cumulative distribution over ``columns``, plus i, flattened, [n * m].
    """

    nodes: IntArray
    columns: IntArray
    cumulative: npt.NDArray[np.float64]

    @classmethod
    def of(cls, snapshot: Snapshot, steps: int = WALK_STEPS) -> WalkContexts:
        """Compute the distribution; costs ``steps`` sparse products, and 8 bytes per pair of nodes with links."""
        read, reader, weight = snapshot.edges()
        weight = np.ones(len(read)) if weight is None else weight.astype(np.float64)
        shape = (len(snapshot.nodes), len(snapshot.nodes))
        links = sp.csr_array((weight, (read, reader)), shape=shape)
        links = links.maximum(links.T)
        active = np.flatnonzero(links.sum(axis=1))
        links = links[active][:, active]
        chance = sp.csr_array(links / links.sum(axis=1)[:, None])
        reached, total = np.eye(len(active)), np.zeros((len(active), len(active)))
        for _ in range(steps):
            reached = (chance.T @ reached.T).T
            total += reached
        np.fill_diagonal(total, 0)
        kept = total.sum(axis=1) > 0
        cumulative = np.cumsum(total[kept], axis=1)
        cumulative /= cumulative[:, -1:]
        cumulative += np.arange(len(cumulative))[:, None]
        return cls(active[kept], active, cumulative.ravel())

    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw ``count`` contexts of every node: nodes and contexts as positions in the snapshot."""
        row = np.repeat(np.arange(len(self.nodes)), count)
        at = np.searchsorted(self.cumulative, row + rng.random(len(row)), side="right")
        return self.nodes[row], self.columns[at - row * len(self.columns)]
