"""Published evaluation protocols by name; on the command line ``strobe benchmark``."""

from strobe.protocols.base import (
    Protocol,
    ProtocolRequest,
    ProtocolResult,
    PublishedRow,
    find_protocol,
    list_protocols,
    protocol_names,
    register,
)

__all__ = [
    "Protocol",
    "ProtocolRequest",
    "ProtocolResult",
    "PublishedRow",
    "find_protocol",
    "list_protocols",
    "protocol_names",
    "register",
]
