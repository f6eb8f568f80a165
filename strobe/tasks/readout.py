"""The head for nodes: from the embedding of a cell to numbers about it."""

from __future__ import annotations

from torch import Tensor, nn

from strobe.ops.readout import readout


class NodeReadout(nn.Linear):
    """A linear map of what is positive in an embedding."""

    def forward(self, z: Tensor, rows: Tensor | None = None) -> Tensor:
        return readout(z, self.weight, self.bias, rows)
