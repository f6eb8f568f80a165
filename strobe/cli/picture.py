"""Pictures that commands draw: where they go, and what they do not replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from strobe.cli.console import err
from strobe.errors import OptionError
from strobe.io.atomic import write_whole


def picture_option(usual: Path) -> Any:
    """Where a command's picture goes; ``usual`` is its name."""
    help, usually = "Where the picture goes, an SVG.", f"{usual}; with --json none"
    return typer.Option("--out", "-o", metavar="FILE", help=help, show_default=usually)


def check_place(path: Path, usual: Path) -> None:
    """Refuses a place where the picture cannot or should not be written, before the work. ``usual`` is its name."""
    if path.is_dir():
        raise OptionError(f"{path} is a directory: give the name of a file, such as {path / usual}")
    if not path.parent.is_dir():
        raise OptionError(f"there is no directory {path.parent} to write {path.name} into")
    if path.exists() and not _is_picture(path):
        raise OptionError(f"{path} exists and is not a picture of ours: it is left alone. Choose another name (--out).")


def write_picture(drawn: str, path: Path, quiet: bool) -> None:
    """Writes an SVG, and says where."""
    try:
        write_whole(path, lambda file: file.write(drawn.encode()))
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
    if not quiet:
        err.print(Text(f"picture: {path}"), highlight=False, soft_wrap=True)


def _is_picture(path: Path) -> bool:
    if not path.is_file():  # a device or a pipe
        return False
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"<svg")
