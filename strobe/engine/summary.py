"""What came out of a run, in words: metrics next to those of trivial answers, time, memory, and what its ranks did."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from strobe.engine.ledger_table import LedgerLine, Spent, load, matters, sent_by_kind, spent
from strobe.numbers import file_size, number_of, percent, short, times
from strobe.registry import AXES

Scores = Mapping[str, Mapping[str, float | None]]

_MOST_RANKS = 16


def run_summary(result: Mapping[str, Any]) -> str:
    """A finished run, from what its ``result.json`` holds."""
    early = " (no better since: stopped early)" if result["stopped_early"] else ""
    pace = result["seconds_per_epoch"]
    speed = "" if pace is None else f", {duration(pace)} an epoch"
    lines = [
        f"{result['model']} on {result['graph']}, {result['task']}: {number_of(result['parameters'], 'parameter')}",
        f"{number_of(result['epochs'], 'epoch')} in {duration(result['seconds'])}{speed}; "
        f"best at epoch {result['best_epoch']}{early}",
        *_window(result),
        *_machine(result),
        "",
        *score_table("test", result["model"], result["test"], result["baselines"].get("test", {})),
    ]
    said = verdict(result["test"], result["baselines"].get("test", {}), result["metric"], result["higher_is_better"])
    return "\n".join([*lines, *([said] if said else [])])


def setting_in_words(window: Mapping[str, Any]) -> str:
    """2 snapshots whole and 6 decayed to 10%."""
    whole = f"{number_of(window['full'], 'snapshot')} whole"
    return f"{whole} and {window['decayed']} decayed to {percent(window['keep'])}" if window["decayed"] else whole


def score_table(part: str, model: str, metrics: Mapping[str, Any], baselines: Scores) -> list[str]:
    """A row per answerer, a column per metric; at most about 70 columns wide."""
    if not metrics:
        return [f"{part}: nothing could be asked"]
    rows = {model: metrics, **baselines}
    width = max(len(name) for name in (*rows, part))
    widths = {name: max(len(name), 9) for name in metrics}
    lines = [f"{part:{width}}  " + " ".join(f"{name:>{widths[name]}}" for name in metrics)]
    for name, scores in rows.items():
        numbers = " ".join(f"{figure(scores.get(metric)):>{widths[metric]}}" for metric in metrics)
        lines.append(f"{name:{width}}  {numbers}")
    return lines


def verdict(metrics: Mapping[str, Any], baselines: Scores, metric: str, higher_is_better: bool) -> str:
    """The model against every trivial answer by the metric that counts, in a sentence."""
    said = [
        f"{words} {name}"
        for name, scores in baselines.items()
        if (words := compared(metrics.get(metric), scores.get(metric), higher_is_better))
    ]
    return f"{metric}: {', '.join(said)}" if said else ""


def compared(ours: float | None, theirs: float | None, higher_is_better: bool) -> str:
    """38% better than, 5% worse than; empty where either is unknown."""
    if ours is None or theirs is None or not (math.isfinite(ours) and math.isfinite(theirs)):
        return ""
    if ours == theirs:
        return "no better than"
    better = (ours > theirs) == higher_is_better
    if not theirs:
        return "better than" if better else "worse than"
    share = abs(ours - theirs) / abs(theirs)
    shown = f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}" if share >= 0.001 else "<0.1%"
    if share >= 10:
        shown = f"{share + 1:,.0f} times as good as" if higher_is_better else f"{share + 1:,.0f} times"
        return shown if higher_is_better else f"{shown} as {'good' if better else 'bad'} as"
    return f"{shown} {'better' if better else 'worse'} than"


def figure(value: float | None) -> str:
    """A metric: 0.1234, 12.35, 1.2e+06; – where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """35 ms, 4.2 s, 3:25 min, 2:03 h."""
    if seconds < 0.9995:
        return f"{max(seconds * 1000, 0):.0f} ms" if seconds >= 0.00995 else f"{seconds * 1000:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def choice_in_short(axis: str, choice: Mapping[str, Any]) -> str:
    """A choice as the command line takes it, with the options that are not as usual: relay:groups=4."""
    name = str(choice["name"])
    usual = AXES[axis][name]().to_json() if name in AXES[axis] else {}
    told = [f"{option}={word(value)}" for option, value in choice.items() if usual.get(option, name) != value]
    return f"{name}:{','.join(told)}" if told else name


def choices(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The choices of a plan by axis; the exchange has two, one for each stage."""
    found: dict[str, Mapping[str, Any]] = {}
    for axis, choice in plan.items():
        found |= choice if axis == "exchange" else {axis: choice}
    return found


def plan_in_short(plan: Mapping[str, Any]) -> str:
    """All choices of a plan."""
    return ", ".join(f"{axis} {choice_in_short(axis, choice)}" for axis, choice in choices(plan).items())


def word(value: Any) -> str:
    """The value of an option, as the command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(word, value))
    if isinstance(value, Mapping):  # a choice within a choice
        told = [f"{option}={word(each)}" for option, each in value.items() if option != "name"]
        inner = f"{value['name']}:{','.join(told)}" if told else str(value["name"])
        return f"[{inner}]" if len(told) > 1 else inner
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def rank_table(ledgers: Sequence[LedgerLine], epochs: int) -> list[str]:
    """A row per rank for a mean epoch, then what travelled and how even the work was; under 80 columns wide."""
    ranks = [spent(ledger, epochs) for ledger in ledgers]
    rows = [["rank", "cells", "arcs", "computing", "exposed", "waiting", "hidden", "sent", "memory"]]
    rows += [[str(rank), *_told(each)] for rank, each in enumerate(ranks)]
    if len(ranks) > _MOST_RANKS:
        rows[_MOST_RANKS:-1] = [["…"] * len(rows[0])]
    caption = "each rank in a mean epoch, evaluation included; memory is the peak"
    lines = [caption, *aligned(rows), *folded(_travelled(ledgers, epochs)), _evenness(ranks)]
    return [*lines, *folded(_drawn(ledgers, epochs))]


def folded(text: str) -> list[str]:
    """A long line as several of at most 80 columns, broken between its parts only."""
    parts = re.sub(r"(?<![,:;]) ", "\u00a0", text)
    lines = textwrap.wrap(parts, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def aligned(rows: Sequence[Sequence[str]], *, words: int = 0, gap: int = 1) -> list[str]:
    """Rows as lines: the first so many columns are words, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if k < words else ">" for k in range(len(widths))]
    return [
        (" " * gap).join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def _told(rank: Spent) -> list[str]:
    seconds = (rank.computing_s, rank.exposed_s, rank.waiting_s, rank.hidden_s)
    memory = file_size(rank.peak_bytes) if rank.peak_bytes else "–"
    return [short(rank.cells), short(rank.arcs), *map(duration, seconds), file_size(rank.sent_bytes), memory]


def _travelled(ledgers: Sequence[LedgerLine], epochs: int) -> str:
    kinds = sent_by_kind(ledgers, epochs)
    told = {kind: kinds[kind] for kind in matters(kinds)}
    told["the rest"] = sum(kinds.values()) - sum(told.values())
    judging = sum(sent_by_kind(ledgers, epochs, "evaluate").values())
    spared = sum(sum(ledger.get("spared", {}).values()) for ledger in ledgers) / max(epochs, 1)
    line = ", ".join(f"{kind} {file_size(num_bytes)}" for kind, num_bytes in told.items())
    line += f"; {file_size(judging)} of it to evaluate" if judging else ""
    return f"sent in an epoch: {line}" + (f"; {file_size(spared)} more if every row had travelled" if spared else "")


def _drawn(ledgers: Sequence[LedgerLine], epochs: int) -> str:
    """What it took to draw batches, where any were."""
    if not any("draw" in ledger["seconds"] for ledger in ledgers):
        return ""
    took = {
        name: sum(ledger["seconds"].get(name, 0.0) for ledger in ledgers) / max(epochs, 1) / len(ledgers)
        for name in ("draw", "drawn beside")
    }
    return f"drawing batches: steps waited {duration(took['draw'])}, {duration(took['drawn beside'])} beside training"


def _evenness(ranks: Sequence[Spent]) -> str:
    work, seconds = load([rank.work for rank in ranks]), load([rank.computing_s for rank in ranks])
    if work is None or seconds is None:
        return "load: some ranks have nothing to compute"
    return f"fullest rank to emptiest: cells and arcs {times(work)}, computing {times(seconds)}"


def _window(result: Mapping[str, Any]) -> list[str]:
    """How much of its window a step computes, where windows decay."""
    window = result.get("window")
    if not window:
        return []
    share = window["computed"]["cells"] / max(window["whole"]["cells"], 1)
    tuned = ", as tuned" if window.get("tuned") else ""
    return folded(f"a step computes {setting_in_words(window)}{tuned}: {percent(share)} of the rows of whole windows")


def _machine(result: Mapping[str, Any]) -> list[str]:
    """Where it ran and what that took, of every rank if there were several."""
    ranks = result.get("ranks") or []
    if len(ranks) < 2:
        return [_memory(result)]
    where = f"{len(ranks)} ranks on {result['device'].partition(':')[0]}"
    return [
        *folded(f"{where}: {plan_in_short(result['plan'])}"),
        "",
        *rank_table(ranks, ranks[0].get("epochs", result["epochs"])),
    ]


def _memory(result: Mapping[str, Any]) -> str:
    place = f"{result['device']}, {number_of(result['threads'], 'thread')}"
    held = f"peak memory {file_size(result['memory_bytes'])}" if result.get("memory_bytes") else ""
    if result.get("device_bytes"):
        held += f", {file_size(result['device_bytes'])} on the device"
    return f"{place}; {held}" if held else place
