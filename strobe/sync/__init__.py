"""How ranks agree on weights."""

from strobe.sync.all_reduce import AllReduce
from strobe.sync.average import Average
from strobe.sync.base import Sync, Syncing, average_buffers

__all__ = ["AllReduce", "Average", "Sync", "Syncing", "average_buffers"]
