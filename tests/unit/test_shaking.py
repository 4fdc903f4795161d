"""`make shake` pauses the processes that it was given, and leaves none paused or busy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shaking import pauses
from shaking.__main__ import busy_processes
from shaking.pauses import Shaker
from waiting import eventually


def _state(process: subprocess.Popen[bytes]) -> str:
    """Return the state of a process as proc(5) has it: T is stopped, R runs, S sleeps."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its input."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses one after the other, and of any length: an end does not wait for them."""
    monkeypatch.setattr(pauses, "_BETWEEN_S", (0.0, 0.001))
    monkeypatch.setattr(pauses, "_PAUSE_S", (3600.0, 3600.0))


@pytest.mark.usefixtures("eager")
def test_a_noted_process_is_paused_and_runs_again_at_the_end(
    child: subprocess.Popen[bytes],
) -> None:
    with Shaker("1"):
        pauses.note(child.pid)
        eventually(lambda: _state(child) == "T")
    eventually(lambda: _state(child) == "S")


def test_a_spared_process_runs(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "_BETWEEN_S", (0.0, 0.001))
    monkeypatch.setattr(pauses, "_PAUSE_S", (0.01, 0.02))
    with Shaker("1") as shaker:
        pauses.note(child.pid)
        eventually(lambda: shaker.pauses)
        pauses.spare(child.pid)
        before = shaker.pauses
        eventually(lambda: _state(child) == "S")
        child.kill()
        child.wait()
    assert shaker.pauses == before


def test_a_process_that_ended_is_paused_no_more(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "_BETWEEN_S", (0.0, 0.001))
    with Shaker("1") as shaker:
        pauses.note(child.pid)
        child.kill()
        child.wait()
        eventually(lambda: not shaker._processes)


def test_without_a_shaker_no_process_is_paused(child: subprocess.Popen[bytes]) -> None:
    pauses.note(child.pid)
    pauses.spare(child.pid)
    assert _state(child) in "RS"


def test_busy_processes_end_with_their_block_even_if_it_fails() -> None:
    with pytest.raises(KeyError), busy_processes(2) as running:
        eventually(lambda: all(_state(process) == "R" for process in running))
        raise KeyError("planted")
    assert all(process.returncode for process in running)
