"""One DuckDB instance for many inputs: to open one costs more than to read a small table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.graph.ingest import staging

if TYPE_CHECKING:
    import duckdb


class SharedDatabase:
    """Stands in for the function that opens a database: every input gets an empty one within the same instance."""

    def __init__(self) -> None:
        self._open = staging._connect
        self._instance: duckdb.DuckDBPyConnection | None = None
        self._number = 0

    def install(self) -> None:
        """Pin this process to one core, and open databases this way from now on."""
        import pyarrow as pa

        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # one worker, one core: no threads wait for others
        pa.set_cpu_count(1)
        staging._connect = self._connect

    def _connect(self, scratch: Path, memory: str) -> duckdb.DuckDBPyConnection:
        self._number += 1
        if self._number % 10 == 0 or self._instance is None or memory != "512MB":
            instance, self._instance = self._instance, None
            if instance is not None:
                instance.close()
            self._instance = self._open(scratch, memory)
            return self._instance.cursor()
        session = self._instance.cursor()
        try:
            session.execute(f"ATTACH ':memory:' AS input{self._number}; USE input{self._number}; SET TimeZone = 'UTC'")
        except Exception:  # an error within DuckDB makes the whole instance useless
            self._instance = None
            return self._connect(scratch, memory)
        return session
