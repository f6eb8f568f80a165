"""How snapshots are kept."""

from strobe.store.base import Store
from strobe.store.delta import Delta
from strobe.store.full import Full

__all__ = ["Delta", "Full", "Store"]
