"""Exchange axis: how rows owned by other ranks arrive, in the structure and in the time stage."""

from typing import TYPE_CHECKING

from strobe.exchange.base import Exchange, StructureExchange, TimeEncoder, TimeExchange, TimeStage
from strobe.strategy import lazy_strategies

if TYPE_CHECKING:
    from strobe.exchange.cached import Cached
    from strobe.exchange.fetch import Fetch
    from strobe.exchange.halo import Halo
    from strobe.exchange.none import NoExchange, NoTimeExchange
    from strobe.exchange.overlap.strategy import Overlapped
    from strobe.exchange.relay.strategy import Relay
    from strobe.exchange.shuffle import Shuffle
    from strobe.exchange.stale import Stale, StaleTime

__all__ = [
    "Cached",
    "Exchange",
    "Fetch",
    "Halo",
    "NoExchange",
    "NoTimeExchange",
    "Overlapped",
    "Relay",
    "Shuffle",
    "Stale",
    "StaleTime",
    "StructureExchange",
    "TimeEncoder",
    "TimeExchange",
    "TimeStage",
]

__getattr__ = lazy_strategies(__name__)
