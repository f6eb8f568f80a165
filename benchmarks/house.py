"""How large is Strobe, is it written in the field's words, and do its losses stay the same?

Counts lines, files, late imports and names in the source tree, traces the files of ``strobe/`` that one training step
runs through, and runs ``benchmarks.fingerprint``. Seconds of the test suite and coverage are measured elsewhere and
given on the command line: ``--test-s`` is the wall time of ``make test`` on two cores, coverage is the percentage of
``pytest --cov=strobe`` before and after a change.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import strobe
import strobe.engine.fit as engine_fit
from benchmarks.record import Record, option_parser, table
from strobe.graph.synthetic import Social
from strobe.plan import Plan
from tools.check_words import ROOT, check_name, find_classes_twice, read_rules

PACKAGE = ROOT / "strobe"
EPOCHS = 3
TARGETS = {
    "fingerprint_changed": 0,
    "lines": 46_000,
    "test_lines_ratio": 0.75,
    "test_s": 480,
    "files_per_step": 18,
    "names_in_private_idiom": 0,
    "class_names_twice": 8,
    "late_imports": 40,
    "single_importers": 90,
    "engine_files": 18,
}
"""The most that each figure may be."""
_SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:")


def parsed() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module of ``strobe/``."""
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def count_lines(folder: Path) -> int:
    """Count the lines of all Python files below a folder."""
    return sum(path.read_text().count("\n") for path in folder.rglob("*.py"))


def count_section_lines(modules: dict[Path, ast.Module]) -> int:
    """Count the lines of docstrings from their first section (Args, Returns, Raises) on."""
    count = 0
    for tree in modules.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                lines = [line.strip() for line in (ast.get_docstring(node) or "").splitlines()]
                starts = [lines.index(section) for section in _SECTIONS if section in lines]
                count += len(lines) - min(starts, default=len(lines))
    return count


def private_names(modules: dict[Path, ast.Module]) -> dict[str, str]:
    """Return names of modules, classes and functions that have a word of ``tools/words.txt``, and where they are."""
    rules = read_rules()
    patterns = rules["definitions"] + rules["names"]
    places: dict[str, str] = {}
    for path, tree in modules.items():
        name = path.relative_to(ROOT).as_posix()
        definitions = [(path.stem, 1)] + [
            (node.name, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        for word, line in definitions:
            places |= {finding.word: f"{name}:{line}" for finding in check_name(name, line, word, patterns)}
    return places


def late_imports(modules: dict[Path, ast.Module]) -> list[str]:
    """Return ``file:line`` of imports inside functions, and of ``import_module`` outside the registry."""
    places = set()
    for path, tree in modules.items():
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = [each for each in ast.walk(node) if isinstance(each, ast.Import | ast.ImportFrom)]
                places |= {f"{name}:{each.lineno}" for each in inside}
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id == "import_module" and path != PACKAGE / "registry.py":
                places.add(f"{name}:{called.lineno}")
    return sorted(places)


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of Strobe that a module imports; all imports of Strobe are absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("strobe."))
        elif isinstance(node, ast.ImportFrom) and node.module == "strobe":
            yield f"strobe.{node.names[0].name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strobe."):
            yield str(node.module)


def single_importers(modules: dict[Path, ast.Module]) -> list[str]:
    """Return the modules that exactly one other module imports."""
    importers: dict[str, set[Path]] = defaultdict(set)
    for path, tree in modules.items():
        for name in imported_modules(tree):
            importers[name].add(path)
    return sorted(name for name, paths in importers.items() if len(paths) == 1)


def functions_of_step() -> dict[str, list[str]]:
    """Return the functions that one step of T-GCN calls, by file of ``strobe/``: default plan, one rank, warm."""
    graph = Social(nodes=60, snapshots=12, edges=150, communities=4, seed=1).write()
    files: dict[str, set[str]] = defaultdict(set)
    train_step, steps = engine_fit.train_step, 0

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            files[Path(code.co_filename).relative_to(ROOT).as_posix()].add(code.co_qualname)

    def traced_step(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps < EPOCHS:
            return train_step(*arguments)
        sys.setprofile(trace)
        try:
            return train_step(*arguments)
        finally:
            sys.setprofile(None)

    with patch.object(engine_fit, "train_step", traced_step):
        strobe.train(graph, "tgcn", plan=Plan(), epochs=EPOCHS, threads=1, device="cpu", seed=3)
    return {path: sorted(names) for path, names in sorted(files.items())}


def run_fingerprint(record: Record) -> None:
    """Run the fingerprint in a process of its own and take over its figures."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "fingerprint.json"
        command = [sys.executable, "-m", "benchmarks.fingerprint", "--json", str(target)]
        done = subprocess.run(command + ["--quick"] * record.quick, cwd=ROOT)
        if target.exists():
            record.figures |= json.loads(target.read_text())["figures"]
        else:
            reason = f"benchmarks.fingerprint ended with {done.returncode}"
            record.missing |= dict.fromkeys(("fingerprint_cases", "fingerprint_changed"), reason)


def main() -> None:
    """Count everything, run the fingerprint and print the table."""
    parser = option_parser(__doc__)
    for name, text in (
        ("--test-s", "seconds of `make test` on two cores"),
        ("--coverage-before", "coverage of the tests before the change, in percent"),
        ("--coverage-after", "coverage of the tests after the change, in percent"),
    ):
        parser.add_argument(name, type=float, help=text)
    chosen = parser.parse_args()
    record = Record("house", chosen.quick)
    run_fingerprint(record)
    modules = parsed()
    places: dict[str, list[str] | dict[str, Any]] = {
        "names_in_private_idiom": private_names(modules),
        "class_names_twice": find_classes_twice(),
        "late_imports": late_imports(modules),
        "single_importers": single_importers(modules),
        "files_per_step": functions_of_step(),
    }
    record.figures |= {
        "lines": count_lines(PACKAGE),
        "section_lines": count_section_lines(modules),
        "test_lines_ratio": round(count_lines(ROOT / "tests") / count_lines(PACKAGE), 3),
        "engine_files": len(list((PACKAGE / "engine").glob("*.py"))),
        **{name: len(values) for name, values in places.items()},
    }
    record.samples |= places
    for name in ("test_s", "coverage_before", "coverage_after"):
        if (value := getattr(chosen, name)) is None:
            record.missing[name] = f"not given: --{name.replace('_', '-')}"
        else:
            record.figures[name] = value
    rows = [[name, value, TARGETS.get(name, "")] for name, value in record.figures.items()]
    table(["figure", "value", "at most"], rows)
    print("one step runs through", ", ".join(places["files_per_step"]))
    record.write(chosen.json)


if __name__ == "__main__":
    main()
