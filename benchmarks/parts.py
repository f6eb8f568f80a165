"""Benchmarks of several parts: one after the other, or one alone beside what the record says of the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

from benchmarks.record import Record, option_parser, table

Part = Callable[[], None]


def parts_parser(description: str | None, parts: Iterable[str]) -> argparse.ArgumentParser:
    """Options of a benchmark whose parts can be measured alone."""
    parser = option_parser(description)
    parser.add_argument("--only", choices=list(parts), help="one part; others stay as they were in the record")
    return parser


def run_parts(record: Record, parts: Mapping[str, Part], said: argparse.Namespace, paper: Mapping[str, float]) -> None:
    """Measures all parts, or the one that was said, and prints all figures beside those of the paper.

    Where parts can be measured alone, each is kept as soon as it was measured, whatever happens to the next.
    """
    alone = "only" in said
    only = said.only if alone else None
    if only:
        record.recall(said.json)
    for name in [only] if only else parts:
        began = perf_counter()
        parts[name]()
        print(f"({name}: {perf_counter() - began:.0f} s)\n", flush=True)
        if alone and not said.quick:
            record.write(said.json)
    rows = [
        [name, f"{value:.3g}", f"{paper[name]:.3g}" if name in paper else ""] for name, value in record.figures.items()
    ]
    table(["figure", "here", "paper"], rows)
    for name, reason in record.missing.items():
        print(f"missing {name}: {reason}")
    record.write(said.json)
