"""Trivial scores of undirected links, from the snapshots up to the one read; nothing is fitted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from strobe.protocols.next_links import FloatArray, Pairs

BASELINES = ("edgebank", "edgebank-window", "most-recent-first", "popularity", "common-neighbors")
NODE_ACTIVITY = "node-activity"
"""The classifier on Hadamard products of the models' inputs without node ids: what a model must add to."""
PAIR_FEATURES = "pair-features"
"""The classifier on pair features without embeddings."""
WINDOW = 0.15
"""Share of the snapshots so far that EdgeBank with a window remembers, at least the last one."""
FITTED = (NODE_ACTIVITY, PAIR_FEATURES)
"""Baselines whose classifier is fitted, as the models' is."""


class LinkHistory:
    """All links of the snapshots read so far, self-loops included."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes, self._time = num_nodes, -1
        self._keys = np.empty(0, np.int64)
        self._last = np.empty(0, np.int64)
        self._degree = np.zeros(num_nodes)
        self._active = np.full(num_nodes, -1)

    def read(self, links: Pairs) -> None:
        """Read the links of the next snapshot, as ``snapshot_links`` returns them."""
        self._time += 1
        keys = np.concatenate([self._keys, self._to_keys(links)])
        times = np.concatenate([self._last, np.full(len(links), self._time)])
        self._keys, at = np.unique(keys[::-1], return_index=True)  # of equal keys the last one
        self._last = times[::-1][at]
        self._degree += np.bincount(links.ravel(), minlength=self._num_nodes)
        self._active[links.ravel()] = self._time

    def scores(self, pairs: Pairs) -> dict[str, FloatArray]:
        """Score pairs; scores of different snapshots are comparable.

        ``edgebank``: 1 if the pair had a link; ``edgebank-window``: in the last snapshots. ``most-recent-first``: pairs
        by their last link, then others by the last links of both ends. ``popularity``: product of the ends' numbers of
        links (preferential attachment). ``common-neighbors``: nodes that both ends had links with.
        """
        last, since = self._last_link(pairs), self._time + 1 - max(round(WINDOW * (self._time + 1)), 1)
        ends = 1 / (1.0 + self._time - self._active[pairs]) * (self._active[pairs] >= 0)
        return {
            "edgebank": (last >= 0).astype(np.float64),
            "edgebank-window": ((last >= 0) & (last >= since)).astype(np.float64),
            "most-recent-first": np.where(last >= 0, 1 + 1 / (1.0 + self._time - last), ends.prod(axis=1)),
            "popularity": self._degree[pairs].prod(axis=1),
            "common-neighbors": self._common_neighbors(pairs),
        }

    def _to_keys(self, pairs: Pairs) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = pairs[:, 0] * self._num_nodes + pairs[:, 1]
        return keys

    def _last_link(self, pairs: Pairs) -> npt.NDArray[np.int64]:
        """Snapshot of the last link of each pair; -1 without one."""
        if not len(self._keys):
            return np.full(len(pairs), -1)
        keys = self._to_keys(pairs)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._last[at], -1)

    def _common_neighbors(self, pairs: Pairs) -> FloatArray:
        one, other = np.divmod(self._keys, self._num_nodes)
        one, other = one[one != other], other[one != other]
        ends = np.concatenate([one, other]), np.concatenate([other, one])
        neighbors = sp.csr_array((np.ones(len(ends[0])), ends), shape=(self._num_nodes, self._num_nodes))
        common = neighbors[pairs[:, 0]] * neighbors[pairs[:, 1]]
        return np.asarray(common.sum(axis=1), np.float64).ravel()
