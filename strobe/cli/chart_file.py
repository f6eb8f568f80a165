"""Charts that commands write: the ``--out`` option, path checks and writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strobe.cli.console import print_note
from strobe.cli.options.groups import option
from strobe.errors import OptionError
from strobe.io.atomic import write_atomic


def chart_option(default: Path) -> Any:
    """Build the ``--out`` option of a command whose chart is called ``default``."""
    return option("The chart to write, an SVG.", "--out", "-o", metavar="FILE", default=f"{default}; with --json none")


def choose_chart_path(path: Path | None, default: Path, as_json: bool) -> Path | None:
    """Resolve the path of a chart: ``path``, else ``default``, or None with ``--json``; checked before the work.

    Raises:
        OptionError: the path is a directory, its directory does not exist, or it is a file other than an SVG.
    """
    if path is None and as_json:
        return None
    path = path or default
    if path.is_dir():
        raise OptionError(f"{path} is a directory: give the name of a file, such as {path / default}")
    if not path.parent.is_dir():
        raise OptionError(f"there is no directory {path.parent} to write {path.name} into")
    if path.exists() and not _is_svg(path):
        raise OptionError(f"{path} exists and is not an SVG: it is not replaced. Choose another name (--out).")
    return path


def write_chart(svg: str, path: Path, quiet: bool) -> None:
    """Write an SVG and print its path."""
    try:
        write_atomic(path, lambda file: file.write(svg.encode()))
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
    if not quiet:
        print_note(f"chart: {path}")


def _is_svg(path: Path) -> bool:
    if not path.is_file():  # a device or a pipe
        return False
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"<svg")
