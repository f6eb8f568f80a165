"""Published ways to train, and our own, each six visible choices: functions that return a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strobe.errors import UnknownNameError
from strobe.options import check_options, hints_of
from strobe.plan import Plan
from strobe.presets.bvr import bvr
from strobe.presets.dbos import dbos
from strobe.presets.dbov import dbov
from strobe.presets.dgc import dgc
from strobe.presets.distdy import distdy
from strobe.presets.dygnex import dygnex
from strobe.presets.dynahb import dynahb
from strobe.presets.flare import flare
from strobe.presets.hash import hash as by_hash
from strobe.presets.metis import metis
from strobe.presets.psg import psg
from strobe.presets.pss import pss
from strobe.presets.pss_ts import pss_ts
from strobe.presets.pts import pts
from strobe.presets.relay import relay

__all__ = ["ARRIVING", "PRESETS", "describe", "preset"]

ARRIVING = "distdy"
"""The one for snapshots that arrive, where nobody says which."""

PRESETS: dict[str, Callable[..., Plan]] = {
    "bvr": bvr,
    "dbos": dbos,
    "dbov": dbov,
    "dgc": dgc,
    "distdy": distdy,
    "dygnex": dygnex,
    "dynahb": dynahb,
    "flare": flare,
    "hash": by_hash,
    "metis": metis,
    "psg": psg,
    "pss": pss,
    "pss-ts": pss_ts,
    "pts": pts,
    "relay": relay,
}


def preset(name: str, **options: Any) -> Plan:
    """The plan of a name, with options of its own."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    check_options(f"preset {name}", options, hints_of(PRESETS[name]))
    return PRESETS[name](**options)


def describe() -> list[tuple[str, str]]:
    """(name, what it does) of every preset."""
    return [(name, (make.__doc__ or "").splitlines()[0]) for name, make in PRESETS.items()]
