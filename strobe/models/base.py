"""What a model is: a stack of blocks, each a structure stage and a time stage, written against a view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.models.structure import Structure, as_structure
from strobe.models.time import Time, as_time
from strobe.ops.readout import readout
from strobe.view import View

_PARTS = ("layers", "time_layers", "stacked", "hops", "heads")
_MOST_PARTS = 1024


class Model(nn.Module, ABC):
    """Gives every cell of a view an embedding of ``width`` numbers; a task's head turns it into a prediction.

    A model of your own needs ``forward(view)`` and ``width``, nothing else; it need not inherit from this class.
    """

    width: int

    @abstractmethod
    def forward(self, view: View) -> Tensor:
        """Embeddings of the view's cells, [C, width]."""

    def answers(self, view: View, weight: Tensor, bias: Tensor) -> Tensor:
        """``readout(self(view), weight, bias)``, where nothing else is wanted of the embeddings: a model may spare
        itself what these would need."""
        return readout(self(view), weight, bias)


class Block(nn.Module):
    """A structure stage, then a time stage; either may be absent.

    ``structure`` is one of Strobe's or any PyTorch Geometric convolution, ``time`` one of Strobe's or a torch GRU,
    LSTM or attention module: ``Block(GCNConv(2, 32), nn.GRU(32, 32))``.
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
    """Blocks one after the other: the shortest way to a model of your own."""

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
    """Refuses widths, layers and heads that are not positive whole numbers, and more parts than can be made."""
    for name, given in sizes.items():
        for size in [given] if isinstance(given, int) else given:
            if size < 1:
                raise OptionError(f"{name} must be at least 1, not {size}")
            if name in _PARTS and size > _MOST_PARTS:
                raise OptionError(f"{name} must be at most {_MOST_PARTS:,}, not {size:,}")
