"""Hybrid batches: some nodes in some snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strobe.batching.base import Batch, Batching
from strobe.batching.drawing import Chosen, Drawing
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.options import several
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Hybrid(Batching):
    """Every rank draws batches of its own nodes: a share ``vertices`` of them in a share ``snapshots`` of consecutive
    training snapshots, with all they read around them, and fresh states. Above 1, both are numbers; of nodes there
    are at least ``least``. (Definition 3 of Song et al. 2024.)

    Of several shares each pair is a size: the only one, one by lot in every step (``sizes`` random), or what a learner
    chooses (learned). Batches are made beside training and kept, in up to ``memory`` MiB, so that most steps take one
    that is ready. Targets come in equal parts out of ``groups`` groups of similar load, where the placement knows
    loads. An epoch has ``steps`` steps (None: about as many cells are asked in it as there are).

    With all vertices and all snapshots a batch is the full batch.
    """

    name: ClassVar[str] = "hybrid"
    exact: ClassVar[bool] = False
    wants_hops: ClassVar[bool] = True
    snapshots: float | Sequence[float] = 0.2
    vertices: float | Sequence[float] = 0.05
    sizes: Chosen = "fixed"
    least: int = 1
    groups: int = 8
    steps: int | None = None
    memory: float = 1024.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("snapshots", "vertices"):
            shares = several(getattr(self, name))
            _check_shares(name, shares)
            object.__setattr__(self, name, shares if len(shares) > 1 else shares[0])
        number = len(several(self.snapshots)) * len(several(self.vertices))
        if self.sizes == "fixed" and number > 1:
            raise OptionError(f"there are {number} sizes of batches to choose from: say sizes=random or sizes=learned")
        for name in ("least", "groups", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} of hybrid batches must be at least 1, not {value}")
        if self.memory < 0:
            raise OptionError(f"memory for batches must be 0 MiB or more, not {self.memory}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("batches per rank",)

    @property
    def needs(self) -> tuple[Need, ...]:
        why = "a rank computes its batch alone, with all that it reads"
        return (Need("inputs at hand", why, "exchange structure cached, or placement replicated"),)

    @property
    def drawing(self) -> Drawing:
        return Drawing(
            snapshots=several(self.snapshots),
            nodes=several(self.vertices),
            chosen=self.sizes,
            least=self.least,
            groups=self.groups,
            steps=self.steps,
            memory=self.memory,
        )

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        """None: they are drawn while training goes on."""
        del graph, times, hops, seed
        return []


def _check_shares(name: str, shares: tuple[Any, ...]) -> None:
    if not shares:
        raise OptionError(f"{name} of a batch are a number or several, not none at all")
    for share in shares:
        if not _is_share(share):
            raise OptionError(
                f"{name} of a batch are a share of all, above 0 and up to 1, or a whole number of them above 1, "
                f"not {share!r}"
            )


def _is_share(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return 0 < given <= 1 or (given > 1 and given % 1 == 0)  # neither infinite nor not a number
