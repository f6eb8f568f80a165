"""Large packages that few runs need, imported when one of their names is first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # found without this method from now on
        return value


def lazy_import(name: str) -> Any:
    """Return a stand-in for a module, which is imported when an attribute of it is first read.

    For packages that take long to load: scipy.sparse takes 0.15 s, pyarrow 0.1 s and 30 MiB. Used under
    ``if TYPE_CHECKING: import … else: …``, so that type checkers see the module itself.
    """
    return _LazyModule(name)
