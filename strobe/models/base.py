"""Base classes of models: a stack of blocks, each a structure stage and a time stage, on a view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.models.structure import Structure, as_structure
from strobe.models.time import Time, as_time
from strobe.ops.dense.readout import readout
from strobe.view import View

_PARTS = ("layers", "time_layers", "stacked", "hops", "heads")
_MAX_PARTS = 1024


class Model(nn.Module, ABC):
    """Embeds every cell of a view in ``width`` columns; a task's head makes predictions of the embeddings.

    Your own model needs ``forward(view)`` and ``width``; it need not inherit from this class.
    """

    width: int
    history: int | None = None
    """Snapshots before a cell's own that its embedding depends on; None: all."""

    @abstractmethod
    def forward(self, view: View) -> Tensor:
        """Embed cells.

        Args:
            view: the cells of a window.

        Returns:
            Embeddings, [C, width].
        """

    def forward_readout(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        """Compute ``readout(self(view), weight, bias)``; a model may override it to avoid storing embeddings.

        Args:
            view: the cells of a window.
            weight: weight of the readout, [outputs, width].
            bias: bias of the readout, [outputs].

        Returns:
            Outputs of the cells, [C, outputs].
        """
        return readout(self(view), weight, bias)


class Block(nn.Module):
    """A structure stage, then a time stage: ``Block(GCNConv(2, 32), nn.GRU(32, 32))``.

    Args:
        structure: a stage of ``strobe.models.structure``, any PyTorch Geometric convolution, or None.
        time: a stage of ``strobe.models.time``, a torch GRU, LSTM or attention module, or None.
    """

    def __init__(self, structure: nn.Module | None, time: nn.Module | None = None) -> None:
        super().__init__()
        self.structure: Structure | None = None if structure is None else as_structure(structure)
        self.time: Time | None = None if time is None else as_time(time)

    def forward(self, view: View, x: Tensor) -> Tensor:
        if self.structure is not None:
            x = self.structure(view, x)
        return x if self.time is None else view.over_time(self.time, x)


class Stack(Model):
    """A sequence of blocks.

    Args:
        blocks: the blocks, in order.
        width: columns of the last block's output.
    """

    def __init__(self, *blocks: Block, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.width = width

    def forward(self, view: View) -> Tensor:
        x = view.x
        for block in self.blocks:
            x = block(view, x)
        return x


def check_sizes(**sizes: int | Sequence[int]) -> None:
    """Check that widths, layers and heads are positive, and numbers of layers and heads not absurdly large."""
    for name, values in sizes.items():
        for size in [values] if isinstance(values, int) else values:
            if size < 1:
                raise OptionError(f"{name} must be at least 1, not {size}")
            if name in _PARTS and size > _MAX_PARTS:
                raise OptionError(f"{name} must be at most {_MAX_PARTS:,}, not {size:,}")
