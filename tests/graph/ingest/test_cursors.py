"""Tables of real databases, read through their DB-API drivers."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import Calendar, ingest

ROWS = [(f"acct{k % 7}", f"acct{(3 * k) % 11}", f"2024-{1 + k % 6:02d}-11 12:00:00", k / 4) for k in range(500)]


def expected() -> DynamicGraph:
    src, dst, time, amount = zip(*ROWS, strict=True)
    table = {"payer": src, "payee": dst, "at": time, "amount": np.array(amount)}
    return ingest(table, src="payer", dst="payee", time="at", weight="amount", clock=Calendar("month"))


def read(cursor: Any) -> DynamicGraph:
    return ingest(cursor, src="payer", dst="payee", time="at", weight="amount", clock=Calendar("month"))


def test_an_sqlite_table_is_read_through_a_cursor() -> None:
    con = sqlite3.connect(":memory:")
    con.execute("CREATE TABLE payments (payer TEXT, payee TEXT, at TEXT, amount REAL)")
    con.executemany("INSERT INTO payments VALUES (?, ?, ?, ?)", ROWS)
    graph = read(con.execute("SELECT * FROM payments"))
    assert graph == expected()
    assert graph.times == ("2024-01", "2024-02", "2024-03", "2024-04", "2024-05", "2024-06")


def test_a_cursor_without_a_result_is_refused() -> None:
    con = sqlite3.connect(":memory:")
    with pytest.raises(InputError, match="no result"):
        read(con.execute("CREATE TABLE other (a)"))
    with pytest.raises(InputError, match="no event"):
        read(con.execute("SELECT 1 AS payer, 1 AS payee, '2020-01-01' AS at, 1 AS amount WHERE false"))


def _postgres_binary(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(versions[0]) if versions else shutil.which(name)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The connection string of a PostgreSQL server that lives as long as this module's tests."""
    initdb, pg_ctl = _postgres_binary("initdb"), _postgres_binary("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL's server is not installed (package 'postgresql')")
    as_user: list[str] = []
    with tempfile.TemporaryDirectory(prefix="strobe-pg-") as folder:
        if os.geteuid() == 0:  # the server refuses to run as root
            if subprocess.run(["id", "postgres"], capture_output=True).returncode:
                pytest.skip("PostgreSQL cannot run as root, and there is no user 'postgres'")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(folder, "postgres")
        run = functools.partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, timeout=60, cwd=folder)
        run([*as_user, initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "strobe"])
        settings = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        server = [*as_user, pg_ctl, "-D", f"{folder}/data", "-w"]
        run([*server, "-l", f"{folder}/log", "-o", settings, "start"])
        try:
            yield f"host={folder} user=strobe dbname=postgres"
        finally:
            run([*server, "-m", "immediate", "stop"])


def test_a_postgresql_table_is_read_through_a_server_side_cursor(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    with psycopg.connect(postgres) as con:
        con.execute("CREATE TABLE payments (payer text, payee text, at timestamp, amount double precision)")
        with con.cursor() as writer:
            writer.executemany("INSERT INTO payments VALUES (%s, %s, %s, %s)", ROWS)
        with con.cursor(name="stream") as cursor:
            cursor.execute("SELECT * FROM payments")
            assert read(cursor) == expected()
