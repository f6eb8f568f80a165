"""Compiles the CPU kernels while Strobe is installed, where there is a compiler; goes on without where not."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):
    """Puts strobe/ops/native/kernels-*.so into the wheel, which is then for this platform only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "strobe" / "ops" / "native" / "build.py"
        module = runpy.run_path(str(source))
        problem = module["build"]()
        if problem:
            self.app.display_warning(f"Strobe's CPU kernels were not compiled, plain torch is used instead: {problem}")
            return
        build_data["pure_python"] = False
        # Any Python 3 can load the libraries, but only on a platform as this one.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append("strobe/ops/native/kernels-*.so")
