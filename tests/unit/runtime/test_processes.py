"""Helper processes, with real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakelog.runtime.processes import PythonProcesses, process_usage, send_signal

HELPER = """
import os, sys
from lakelog.runtime.processes import become_helper
become_helper(int(sys.argv[1]))
print(os.nice(0), flush=True)
for line in sys.stdin:
    print(line.strip().upper(), flush=True)
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_helper.py").write_text(HELPER)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def test_lines_are_exchanged_until_the_helper_is_ended() -> None:
    async def scenario() -> None:
        child = await PythonProcesses().start("some_helper")
        assert int(await child.receive()) >= os.nice(0) + 10 or os.nice(0) > 9
        await child.send(b"hello")
        assert await child.receive() == b"HELLO"
        assert await child.end() != 0, "it was killed"
        assert await child.receive() == b""

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_end_of_a_helper_that_ended_by_itself_is_its_status() -> None:
    async def scenario() -> None:
        child = await PythonProcesses().start("no_such_module_of_helpers")
        assert await child.receive() == b""
        assert await child.end() == 1

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_status_of_a_process_that_has_just_ended_is_left_to_its_watcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll would take it, and the watcher would report 255."""

    def poll(process: object) -> int:
        raise AssertionError("polled")

    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "poll", poll)
            send_signal(process, signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM
        send_signal(process, signal.SIGKILL)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_helper_whose_broker_is_gone_exits_at_once() -> None:
    """Otherwise it could still write files that the next start of the broker removes."""
    helper = subprocess.run(
        [sys.executable, "-m", "some_helper", "1"], input="", capture_output=True, text=True
    )
    assert helper.returncode == 1
    assert helper.stderr.strip() == "the broker is gone"
    assert helper.stdout == ""


def test_the_usage_is_that_of_this_process() -> None:
    before = process_usage()
    assert before.cpu_s > 0
    assert before.virtual_bytes > before.resident_bytes > 1 << 20
    assert 0 < before.start_time_s <= time.time()
    assert 3 <= before.open_fds < before.fds_max


def test_an_open_file_counts_as_a_descriptor(tmp_path: Path) -> None:
    before = process_usage().open_fds
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    try:
        assert process_usage().open_fds == before + 1
    finally:
        os.close(descriptor)
    assert process_usage().open_fds == before
