from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
