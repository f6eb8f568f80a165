"""How inputs owned elsewhere arrive."""

from strobe.exchange.base import Exchange, StructureExchange, TimeEncoder, TimeExchange, Timing
from strobe.exchange.cached import Cached
from strobe.exchange.fetch import Fetch
from strobe.exchange.halo import Halo
from strobe.exchange.none import Nothing, Stay
from strobe.exchange.overlapped import Overlapped
from strobe.exchange.relay import Relay
from strobe.exchange.shuffle import Shuffle
from strobe.exchange.stale import Stale, StaleTime

__all__ = [
    "Cached",
    "Exchange",
    "Fetch",
    "Halo",
    "Nothing",
    "Overlapped",
    "Relay",
    "Shuffle",
    "Stale",
    "StaleTime",
    "Stay",
    "StructureExchange",
    "TimeEncoder",
    "TimeExchange",
    "Timing",
]
