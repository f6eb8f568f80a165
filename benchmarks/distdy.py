"""Snapshots as differences, placed as they arrive: what do they spare, and what do they cost?

- ``storage``: bytes of a window as differences beside full snapshots (benchmarks/distdy_storage.py). Shares from 0 to 1
  that are spared: ``storage_saved_uci`` and others have one-hot rows, as DySAT gives graphs without features;
  ``..._degrees`` have in-degree and out-degree.
- ``partition``: seconds to place and store 20 snapshots of 500,000 nodes and 2.5 million edges on 4 ranks, beside
  METIS, hash and greedy (benchmarks/distdy_partition.py). ``partition_vs_metis``: online's seconds for 1 of METIS on
  the union.
- ``rebuild``: seconds to rebuild a snapshot for 1 of reading it in full from disk (benchmarks/distdy_rebuild.py).
- ``epochs``: GraphSAGE on sampled neighbours on hosts with links of 1 Gb/s, the same plan with other placements: bytes
  between ranks and seconds of an epoch (benchmarks/distdy_epochs.py).
- ``online``, ``kills``: training while snapshots arrive (benchmarks/distdy_online.py): rust_git month by month, and
  runs that are killed and go on.

``--only PART`` measures one part and leaves the others in the record as they are; ``--scale`` makes generated graphs
smaller. Figures of the paper are of other machines and graphs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from subprocess import CalledProcessError

from benchmarks.distdy_epochs import RanksFailedError, epochs, one_of_some
from benchmarks.distdy_online import as_watcher, kills, online
from benchmarks.distdy_partition import partition, placed_and_stored
from benchmarks.distdy_rebuild import rebuild
from benchmarks.distdy_storage import storage
from benchmarks.parts import parts_parser, run_parts
from benchmarks.record import Record, tell
from strobe.errors import StrobeError

PAPER: dict[str, float] = {
    "storage_saved_uci": 0.70,
    "storage_saved_enron": 0.70,
    "storage_saved_best": 0.922,
    "storage_saved_synthetic_30": 0.471,
    "storage_saved_synthetic_30_dense": 0.366,
    "storage_saved_changed_10%": 0.614,
    "storage_saved_changed_70%": 0.174,
    "partition_s_500k": 83.78,
    "partition_vs_metis": 80.99 / 99.35,
    "partition_vs_hash": 80.99 / 75.05,
    "epoch_speedup_vs_metis": 1.39,
}
"""Figures 7 to 9 as the text has them, where 70% is the least of four real graphs; Table 3, the worse of both graphs;
the highest speed-up beside any placement."""

QUICK_SCALE = 0.01


def chosen() -> argparse.Namespace:
    """What the command line says."""
    parser = parts_parser(__doc__, PARTS)
    parser.add_argument("--scale", type=float, help="size of generated graphs; 1 but for a quick run")
    parser.add_argument("--preset", default="distdy", help="the plan of the part epochs")
    said = parser.parse_args()
    said.scale = said.scale or (QUICK_SCALE if said.quick else 1.0)
    return said


def main() -> None:
    """Measures and prints everything, or a part of it."""
    said = chosen()
    if said.child:
        return as_child(*said.child)
    if said.scale != 1 and not said.quick and said.json is None:
        raise SystemExit("smaller graphs are for a record of their own: say --json FILE")
    record = Record("distdy", said.quick)
    run_parts(record, {name: partial(measure, record, name, said) for name in PARTS}, said, PAPER)
    return None


def measure(record: Record, part: str, said: argparse.Namespace) -> None:
    """A part; what it says in the record already is gone, whether it can be measured now or not."""
    for kind in (record.figures, record.missing):
        for name in [name for name in kind if name.startswith(PREFIXES[part])]:
            del kind[name]
    try:
        PARTS[part](record, said)
    except (CalledProcessError, RanksFailedError, StrobeError) as error:
        print(error, flush=True)
        record.missing[PREFIXES[part][0]] = str(error).splitlines()[-1]


def as_child(part: str, *given: str) -> None:
    """What a process of its own measures."""
    if part == "partition":
        tell(**placed_and_stored(*given))
    elif part == "epochs":
        one_of_some(*given)
    elif part == "watch":
        as_watcher(*given)


PARTS: dict[str, Callable[[Record, argparse.Namespace], None]] = {
    "storage": lambda record, said: storage(record, said.quick, said.scale),
    "partition": lambda record, said: partition(record, said.quick, said.scale),
    "rebuild": lambda record, said: rebuild(record, said.quick, said.scale),
    "epochs": lambda record, said: epochs(record, said.quick, said.scale, said.preset),
    "online": lambda record, said: online(record, said.quick),
    "kills": lambda record, said: kills(record, said.quick),
}

PREFIXES: dict[str, tuple[str, ...]] = {
    "storage": ("storage",),
    "partition": ("partition", "fetched"),
    "rebuild": ("rebuild",),
    "epochs": ("epoch", "bytes_vs"),
    "online": ("online",),
    "kills": ("watch",),
}
"""How the figures of each part begin."""

if __name__ == "__main__":
    main()
