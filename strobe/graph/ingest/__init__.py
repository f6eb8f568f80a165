"""Ingest: tables of events or of edges per snapshot, of any size, become a dynamic graph."""

from strobe.graph.ingest.clock import ByColumn, ByFile, Calendar, Clock, EventsEach, Every, Into
from strobe.graph.ingest.nodes import NodeTable
from strobe.graph.ingest.pipeline import ingest
from strobe.graph.ingest.snapshots import to_events
from strobe.graph.ingest.text_table import TextOptions

__all__ = [
    "ByColumn",
    "ByFile",
    "Calendar",
    "Clock",
    "EventsEach",
    "Every",
    "Into",
    "NodeTable",
    "TextOptions",
    "ingest",
    "to_events",
]
