from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakelog.cli.local_cluster import ensemble
from lakelog.cli.local_cluster.ensemble import EnsembleError, Home, OrphanGuard, ZooKeeperEnsemble


def test_a_server_that_ends_is_an_error_with_the_place_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble, "_command", lambda: ("false",))
    with (
        pytest.raises(EnsembleError, match=r"server 1 did not start: see .*1/out.log"),
        ZooKeeperEnsemble(tmp_path),
    ):
        pass


def test_a_server_that_ended_by_itself_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble, "_command", lambda: ("sh", "-c", "exit 3"))
    monkeypatch.setattr(ZooKeeperEnsemble, "wait_for", lambda self, number: None)
    with ZooKeeperEnsemble(tmp_path, [Home()]) as running:
        running._processes[1].wait()
        assert running.ended() == {1: 3}
        assert running.ended() == {}
        running.start(1)
        running._processes[1].wait()
        assert running.ended() == {1: 3}


def test_each_server_knows_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "_command", lambda: ("true",))
    monkeypatch.setattr(ZooKeeperEnsemble, "wait_for", lambda self, number: None)
    with ZooKeeperEnsemble(tmp_path, [Home("127.0.0.1"), Home("127.0.0.2")]) as running:
        assert [each.partition(":")[0] for each in running.servers] == ["127.0.0.1", "127.0.0.2"]
    files = [(tmp_path / number / "zoo.cfg").read_text() for number in "12"]
    assert [text.count("server.") for text in files] == [2, 2]
    assert [(tmp_path / number / "myid").read_text() for number in "12"] == ["1", "2"]


_STARTER = """
import os, subprocess, sys
from lakelog.cli.local_cluster.ensemble import OrphanGuard
guard = OrphanGuard()
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
guard.name([child.pid])
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
_LIMIT_S = 60


def test_named_processes_end_with_a_killed_starter() -> None:
    starter = subprocess.run(
        [sys.executable, "-c", _STARTER], capture_output=True, text=True, timeout=_LIMIT_S
    )
    pid = int(starter.stdout)
    # The shell that kills the process is its only parent's other child: wait until it is gone.
    subprocess.run(
        ["sh", "-c", f"while kill -0 {pid} 2>/dev/null; do sleep 0.05; done"],
        check=True,
        timeout=_LIMIT_S,
    )


def test_a_closed_guard_kills_nothing() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        guard = OrphanGuard()
        guard.name([process.pid])
        guard.close()
        assert process.poll() is None
        process.kill()
