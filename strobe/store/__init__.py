"""Store axis: how snapshots are kept in memory."""

from typing import TYPE_CHECKING

from strobe.store.base import Store
from strobe.strategy import lazy_strategies

if TYPE_CHECKING:
    from strobe.store.delta.strategy import Delta
    from strobe.store.full import Full

__all__ = [
    "Delta",
    "Full",
    "Store",
]

__getattr__ = lazy_strategies(__name__)
