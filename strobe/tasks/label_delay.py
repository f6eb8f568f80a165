"""The delay after which labels are known; no label is used as an offset or a baseline before."""

from __future__ import annotations

from typing import Any

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, Static
from strobe.graph.features import find_stored

INFO_KEY = "label_delay"
"""The key of ``graph.info`` with the delay of a graph's labels."""

UNKNOWN_DELAY_NOTE = (
    "the delay of labels is not known, so no label is used as an offset or a baseline: if the label of a snapshot is "
    "known once the next one has been read, give --task-option label_delay=1"
)
"""The note for labels per cell without a delay."""


def check_label_delay(delay: int | None, ahead: int) -> None:
    """Check that a label is not known yet when it is predicted.

    Raises:
        OptionError: the delay is negative, or the label of snapshot t + ahead is known when t has been read.
    """
    if delay is None:
        return
    if delay < 0:
        raise OptionError(f"label_delay must be 0 snapshots or more, not {delay}")
    if delay + ahead < 1:
        raise OptionError(
            f"with label_delay {delay} the label of a snapshot is known when the snapshot has been read: give ahead=1, "
            "or the delay after which labels are known"
        )


def resolve_label_delay(graph: DynamicGraph, delay: int | None, ahead: int) -> int | None:
    """The delay of a graph's labels: the label of snapshot s is known once snapshot s + delay has been read.

    Args:
        graph: a graph with labels; ``graph.info["label_delay"]`` may state the delay.
        delay: the task's delay, which takes precedence.
        ahead: snapshots between the one read and the first one whose label is predicted.

    Returns:
        The delay, or None if it is not known; then no label may be used.

    Raises:
        InputError: the graph's delay is not a number, or a delay is given for labels that never change.
    """
    if isinstance(find_stored(graph.labels), Static):
        if delay is not None:
            raise InputError("label_delay is for labels that change with time; this graph has one label per node")
        return None
    stated: Any = graph.info.get(INFO_KEY) if delay is None else delay
    if stated is None:
        return None
    if isinstance(stated, bool) or not isinstance(stated, int) or stated < 0:
        raise InputError(f"label_delay of the graph must be 0 or a positive whole number, not {stated!r}")
    if stated + ahead < 1:
        return None  # the label is known with its snapshot: only the target itself would be left
    return stated
