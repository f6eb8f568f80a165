"""``python -m strobe``: the program, where only a module can be named, as with torchrun's ``-m``."""

from strobe.cli.main import run

run()
