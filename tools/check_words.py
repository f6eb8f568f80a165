"""Find words of ``tools/words.txt`` and public class names that are defined twice: ``python tools/check_words.py``.

Prints ``file:line: word: replacement`` for each place, then the number of places per folder. Exits with 1 if any.
Names are read from the syntax tree, comments and strings from the tokens, documents as text.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = Path(__file__).with_name("words.txt")
LIBRARY = ("strobe", "examples", "tools")
"""Folders in which all names are checked; in the others only names of tests, functions and classes, by [names]."""
OTHERS = ("tests", "benchmarks", "docs")
AXES = ("store", "placement", "batching", "exchange", "schedule", "sync")
MAX_CLASSES_TWICE = 8
_SHAPES = {"definitions": r"(^|_)({})(_|$)", "names": r"(^|_)({})(_|$)", "spelling": r"(^|_)({})", "text": r"\b({})\b"}
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

Rules = dict[str, list[tuple[re.Pattern[str], str]]]
"""Section of the word list -> (pattern, replacement)."""


@dataclass(frozen=True)
class Finding:
    """A word in a place where it must not be."""

    path: str
    line: int
    word: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.word.split())}: {self.fix}"


def read_rules(path: Path = WORDS) -> Rules:
    """Read the word list.

    Raises:
        ValueError: a line has no section above it, or no tab and replacement.
    """
    rules: Rules = {section: [] for section in _SHAPES}
    section = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            word, tab, fix = line.partition("\t")
            if section not in rules or not tab or not fix:
                raise ValueError(f"{path}:{number}: expected a section, then lines of word, tab, replacement")
            pattern = _SHAPES[section].replace("{}", word.replace(" ", r"\s+"))
            rules[section].append((re.compile(pattern, re.IGNORECASE), fix))
    return rules


def check_name(path: str, line: int, name: str, rules: Sequence[tuple[re.Pattern[str], str]]) -> Iterator[Finding]:
    """Find the first word of an identifier that is in the list; CamelCase is read as snake_case."""
    snake = _CAPITAL.sub("_", name)
    yield from (Finding(path, line, name, fix) for pattern, fix in rules if pattern.search(snake))


def check_names(path: str, tree: ast.AST, rules: Rules, *, library: bool) -> Iterator[Finding]:
    """Find words in identifiers where they are bound: modules, classes, functions, arguments, variables, attributes."""
    names = rules["names"] + rules["spelling"]
    definitions = rules["definitions"] + names if library else rules["names"]
    yield from check_name(path, 1, Path(path).stem, definitions)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from check_name(path, node.lineno, node.name, definitions)
        elif library and isinstance(node, ast.arg):
            yield from check_name(path, node.lineno, node.arg, names)
        elif library and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from check_name(path, node.lineno, node.id, names)
        elif library and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from check_name(path, node.lineno, node.attr, names)


def check_text(path: str, line: int, text: str, rules: Rules) -> Iterator[Finding]:
    """Find words and phrases in prose that begins at a line; a phrase may continue on the next line."""
    for pattern, fix in rules["text"]:
        for match in pattern.finditer(text):
            yield Finding(path, line + text.count("\n", 0, match.start()), match.group(0), fix)


def check_python(path: str, text: str, rules: Rules) -> Iterator[Finding]:
    """Find words in the names, strings and comments of a module."""
    yield from check_names(path, ast.parse(text), rules, library=path.split("/")[0] in LIBRARY)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from check_text(path, token.start[0], token.string, rules)


def check_words(root: Path, rules: Rules) -> list[Finding]:
    """Find words in all Python files and documents below ``root``, in order of files and lines."""
    findings: set[Finding] = set()
    for path in [path for folder in LIBRARY + OTHERS for path in (root / folder).rglob("*.py")]:
        findings.update(check_python(path.relative_to(root).as_posix(), path.read_text(), rules))
    for path in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        findings.update(check_text(path.relative_to(root).as_posix(), 1, path.read_text(), rules))
    return sorted(findings, key=lambda finding: (finding.path, finding.line, finding.word))


def find_classes_twice(root: Path = ROOT) -> dict[str, list[str]]:
    """Return public class names of ``strobe/`` that are defined more than once, with ``file:line`` of each."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "strobe").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(root).as_posix()}:{node.lineno}")
    return {name: lines for name, lines in places.items() if len(lines) > 1}


def check_classes(twice: dict[str, list[str]]) -> list[str]:
    """Return an error for each class name that is defined twice, unless every definition is on another axis."""
    errors = []
    for name, places in twice.items():
        folders = [place.split("/")[1] for place in places]
        if len(set(folders)) < len(folders) or not set(folders) <= set(AXES):
            errors.append(f"{places[0]}: class {name} is also defined in {', '.join(places[1:])}")
    if len(twice) > MAX_CLASSES_TWICE:
        errors.append(f"{len(twice)} class names are defined on several axes, at most {MAX_CLASSES_TWICE} are allowed")
    return errors


def folder_of(finding: Finding) -> str:
    """Return the package of ``strobe/`` or ``tests/`` that a finding is in, otherwise its folder or file."""
    parts = finding.path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("strobe", "tests") and len(parts) > 2 else parts[0]


def main() -> int:
    """Print all findings and their number per folder; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="print only the number of places per folder")
    parser.add_argument("folders", nargs="*", help="print only what is below these paths, such as strobe/engine")
    arguments = parser.parse_args()
    findings = check_words(ROOT, read_rules())
    if arguments.folders:
        findings = [finding for finding in findings if finding.path.startswith(tuple(arguments.folders))]
    errors = check_classes(find_classes_twice())
    if not arguments.count:
        print("\n".join([*map(str, findings), *errors]), end="\n" if findings or errors else "")
    counts = Counter(map(folder_of, findings))
    for folder, count in counts.most_common():
        print(f"{count:5d} {folder}")
    print(f"{len(findings)} words of {WORDS.name}, {len(errors)} class names to change")
    return int(bool(findings or errors))


if __name__ == "__main__":
    sys.exit(main())
