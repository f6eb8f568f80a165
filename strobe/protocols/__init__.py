"""Published evaluation protocols by name; on the command line ``strobe benchmark``."""

from strobe.protocols import dyglib as dyglib  # each registers its protocols
from strobe.protocols import dysat as dysat
from strobe.protocols import live_update as live_update
from strobe.protocols import los_loop as los_loop
from strobe.protocols import snapshot_ranking as snapshot_ranking
from strobe.protocols import tgb as tgb
from strobe.protocols import utg as utg
from strobe.protocols.base import (
    Protocol,
    ProtocolRequest,
    ProtocolResult,
    PublishedRow,
    find_protocol,
    list_protocols,
    register,
)

__all__ = [
    "Protocol",
    "ProtocolRequest",
    "ProtocolResult",
    "PublishedRow",
    "find_protocol",
    "list_protocols",
    "register",
]
