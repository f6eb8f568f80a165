"""Presets: functions that return the plan of a published system, a baseline, or our own, as six visible choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strobe.errors import UnknownNameError
from strobe.options import check_options, option_types
from strobe.plan import Plan
from strobe.presets.baselines import bvr, dbos, dbov, hash_nodes, metis, psg, pss, pss_ts, pts
from strobe.presets.dgc import dgc
from strobe.presets.distdy import distdy
from strobe.presets.dygnex import dygnex
from strobe.presets.dynahb import dynahb
from strobe.presets.flare import flare
from strobe.presets.relay import relay

__all__ = ["DEFAULT_ONLINE", "PRESETS", "preset"]

DEFAULT_ONLINE = "distdy"
"""Default preset of online training."""

PRESETS: dict[str, Callable[..., Plan]] = {
    "bvr": bvr,
    "dbos": dbos,
    "dbov": dbov,
    "dgc": dgc,
    "distdy": distdy,
    "dygnex": dygnex,
    "dynahb": dynahb,
    "flare": flare,
    "hash": hash_nodes,
    "metis": metis,
    "psg": psg,
    "pss": pss,
    "pss-ts": pss_ts,
    "pts": pts,
    "relay": relay,
}


def preset(name: str, **options: Any) -> Plan:
    """Make the plan of a preset.

    Args:
        name: a key of ``PRESETS``.
        options: keyword arguments of the preset function.

    Returns:
        The plan.

    Raises:
        UnknownNameError: unknown preset or option.
        OptionError: an option has the wrong type.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    check_options(f"preset {name}", options, option_types(PRESETS[name]))
    return PRESETS[name](**options)
