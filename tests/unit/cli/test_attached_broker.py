"""A broker that ends with its starter, and the imports of its process.

They take nearly all of its start. They are counted in modules, not in seconds, so that a busy
machine fails no test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_PARSERS = {"rich"}
_TEST_SIDE = {"lakelog.testing", "lakelog.client", "pytest"}
_SPARK = {"pyspark", "pyarrow", "pyiceberg", "numba"}
_PROGRAM = (sys.executable, "-m", "lakelog.cli.attached_broker")
_LIMIT_S = 120


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_PROGRAM, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_reports_that_it_is_ready_and_stops_at_the_end_of_its_input(
    tmp_path: Path,
) -> None:
    with start("--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        _, log = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 0, log
    assert '"event": "stopped"' in log


def test_a_broker_that_cannot_start_has_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with start("--data", str(tmp_path / "file"), "--listen", "127.0.0.1:0") as process:
        assert process.stderr is not None
        log = process.stderr.read()  # its input stays open until it has ended
    assert process.returncode == 1
    assert "error[LL0703] the data folder" in log


def test_it_imports_no_parser_and_removes_its_scratch_folder_last(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = [sys.executable, "-X", "importtime", *_PROGRAM[1:], "--scratch", str(scratch)]
    with subprocess.Popen(
        [*program, f"--data={scratch}/data", "--listen=127.0.0.1:0", "--log-format=text"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        _, log = process.communicate()
    assert (ready, process.returncode) == ("ready\n", 0), log
    assert not scratch.exists()
    modules = set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))
    assert "lakelog.server.app" in modules
    assert not modules & (_PARSERS | _TEST_SIDE | _SPARK)
