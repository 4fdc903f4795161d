"""Errors of the demo's command before it starts anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakelog.spark.demo import __main__ as command
from lakelog.spark.demo.__main__ import DemoBroker, demo


def test_a_missing_log_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "require_java", lambda: None)
    for log in (tmp_path / "missing.log", tmp_path):
        assert demo(input_=log) == 1
        output, error = capsys.readouterr()
        assert error.split() == ["error", "file", "not", "found:", str(log)]
        assert output == ""


def test_a_missing_java_is_an_error_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert demo() == 1
    output, error = capsys.readouterr()
    assert error.startswith("error ")
    assert "found no Java on the PATH" in error
    assert output == ""


READY = "echo starting; echo $$ > {pid}; echo ready on 127.0.0.1:4711;"
PIPE_BYTES = 1 << 20


@pytest.fixture
def pid(tmp_path: Path) -> Path:
    """The file with the id of the process that has started."""
    return tmp_path / "pid"


def run_instead(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(command, "_COMMAND", ("/bin/sh", "-c", script))


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
    monkeypatch.setattr(command, "_STOP_S", 0.05)
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
