"""Start and end of the demo's broker, with a shell script in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakelog.spark.demo import broker_process
from lakelog.spark.demo.broker_process import DemoBroker

READY = "echo starting; echo $$ > {pid}; echo ready on 127.0.0.1:4711;"
PIPE_BYTES = 1 << 20


@pytest.fixture
def pid(tmp_path: Path) -> Path:
    """The file with the id of the process that has started."""
    return tmp_path / "pid"


def run_instead(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(broker_process, "_COMMAND", ("/bin/sh", "-c", script))


def is_alive(pid: Path) -> bool:
    return Path("/proc", pid.read_text().strip()).exists()


def test_the_address_is_that_of_the_line_that_reports_readiness(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pid: Path
) -> None:
    run_instead(monkeypatch, READY.format(pid=pid) + "exec sleep 60")
    with DemoBroker(tmp_path) as broker:
        assert broker.address == "127.0.0.1:4711"
        assert is_alive(pid)
    assert not is_alive(pid)


def test_output_after_the_start_does_not_block_the_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pid: Path
) -> None:
    """A pipe holds 64 KiB: a broker that logs more would wait for a reader."""
    done = tmp_path / "done"
    os.mkfifo(done)
    noise = f"head -c {PIPE_BYTES} /dev/zero | tr '\\0' '\\n'; echo done > {done};"
    run_instead(monkeypatch, READY.format(pid=pid) + noise + "exec sleep 60")
    with DemoBroker(tmp_path):
        assert done.read_text() == "done\n"


def test_a_broker_that_ignores_sigterm_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pid: Path
) -> None:
    monkeypatch.setattr(broker_process, "_STOP_S", 0.05)
    run_instead(monkeypatch, "trap '' TERM;" + READY.format(pid=pid) + "exec sleep 60")
    with DemoBroker(tmp_path):
        pass
    assert not is_alive(pid)


def test_the_error_of_a_broker_that_does_not_start_has_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pid: Path
) -> None:
    run_instead(monkeypatch, f"echo $$ > {pid}; echo the folder is locked >&2; exit 1")
    with pytest.raises(RuntimeError, match=r"did not start: the folder is locked$"):
        DemoBroker(tmp_path).__enter__()
    assert not is_alive(pid), "a zombie is left"
