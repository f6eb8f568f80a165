"""When labels become known: no label is used as a start, an input or a baseline before that."""

from __future__ import annotations

from typing import Any

from strobe.errors import InputError, OptionError
from strobe.graph import DynamicGraph, Static
from strobe.graph.features import given

INFO = "label_delay"
"""Under this name ``graph.info`` holds the delay of a graph's labels, where whoever made the graph knows it."""


NOT_STATED = (
    "when labels become known is not stated, so no label is used as a start or a baseline: if the label of a snapshot "
    "is known once the next one has been read, say --task-option label_delay=1"
)
"""What a user is told of labels per cell without a delay."""


def check_label_delay(delay: int | None, ahead: int) -> None:
    """Refuse a delay that no label can have, or one that makes a label known when it is to be predicted.

    Raises:
        OptionError: the delay is negative, or the label of snapshot t + ahead is known when t has been read.
    """
    if delay is None:
        return
    if delay < 0:
        raise OptionError(f"label_delay is a number of snapshots, 0 or more, not {delay}")
    if delay + ahead < 1:
        raise OptionError(
            f"with label_delay {delay} the label of a snapshot is known when the snapshot has been read, and nothing "
            "is left to predict: say ahead=1, or the delay after which a label really becomes known"
        )


def label_delay_of(graph: DynamicGraph, delay: int | None, ahead: int) -> int | None:
    """The delay of a graph's labels: the label of snapshot s is known once snapshot s + delay has been read.

    Args:
        graph: a graph with labels; ``graph.info["label_delay"]`` may state the delay.
        delay: what the task states, which comes first.
        ahead: snapshots between the one read and the first one whose label is predicted.

    Returns:
        The delay, or None where it is not known; then no label may be used as if it were known.

    Raises:
        InputError: the graph states a delay that is none, or a delay is stated for labels that never change.
    """
    if isinstance(given(graph.labels), Static):
        if delay is not None:
            raise InputError("label_delay is for labels that change with time; this graph has one label per node")
        return None
    found: Any = graph.info.get(INFO) if delay is None else delay
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise InputError(f"the graph says that its label_delay is {found!r}; it must be 0 or a positive whole number")
    if found + ahead < 1:
        return None  # the graph's labels are known with their snapshot: nothing earlier than the target itself is
    return found
