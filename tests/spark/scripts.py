"""Runs the scripts that `lakelog table sync` prints, as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

_HEADING = re.compile(r"^Read it with (\w+):\n\n", re.MULTILINE)


def printed_scripts(output: str) -> dict[str, str]:
    """Return the script of each reader, from the output of the command."""
    _, *found = _HEADING.split(output)
    return dict(zip(found[::2], found[1::2], strict=True))


def run_script(text: str, home: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a script, run with DuckDB's extensions installed."""
    _provide_extensions(home)
    activated = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"HOME": str(home), "PATH": activated, "SPARK_LOCAL_IP": "127.0.0.1"}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=home,
        env={**os.environ, **settings, **(environment or {})},
    )
    # A test that fails shows what Spark had to say about an empty result.
    print(done.stderr[-8000:], file=sys.stderr)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _provide_extensions(home: Path) -> None:
    """Return the folder where DuckDB stores downloaded extensions."""
    with duckdb.connect() as connection:
        [(platform,)] = connection.execute("PRAGMA platform").fetchall()
    target = home / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    target.mkdir(parents=True, exist_ok=True)
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        assert package.__file__ is not None
        for file in Path(package.__file__).parent.rglob("*.duckdb_extension"):
            shutil.copy(file, target)


def counted(output: str) -> dict[str, str]:
    """Partition to count, from a table of these two that a reader has printed."""
    return dict(re.findall(r"[|│]\s*(\d+)\s*[|│]\s*(\d+)\s*[|│]", output))
