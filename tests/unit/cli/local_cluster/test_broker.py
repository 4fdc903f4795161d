from __future__ import annotations

import asyncio
import signal

import pytest

from lakelog.cli.local_cluster import broker
from lakelog.cli.local_cluster.broker import BrokerRun, BrokerSpec, Restarts

SPEC = BrokerSpec(1, "127.0.0.1:9092", ("--node-id", "1"))


def run(program: str, monkeypatch: pytest.MonkeyPatch, *, stop: bool = False) -> tuple[int, bytes]:
    """Return the exit status and the lines of a program in the place of a broker."""
    monkeypatch.setattr(broker, "_PROGRAM", ("-c", program))
    lines: list[bytes] = []

    async def scenario() -> int:
        started = asyncio.Event()

        def line(text: bytes) -> None:
            lines.append(text)
            started.set()

        process = await BrokerRun.start(SPEC, line, lambda: None)
        if stop:
            await started.wait()
            process.stop()
        return await process.wait()

    return asyncio.run(scenario()), b"\n".join(lines)


def test_lines_arrive_whole_with_the_rest_of_an_ended_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = "import sys; sys.stderr.write(' '.join(sys.argv[1:]) + '\\nlast'); sys.exit(3)"
    assert run(program, monkeypatch) == (3, b"--node-id 1\nlast")


def test_a_line_without_an_end_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.stderr.write('x' * 300_000)"
    status, text = run(program, monkeypatch)
    assert (status, text.replace(b"\n", b"")) == (0, b"x" * 300_000)
    assert max(map(len, text.split(b"\n"))) < 1 << 18


def test_a_stopped_process_reports_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys, time; sys.stderr.write('up\\n'); time.sleep(600)"
    status, _ = run(program, monkeypatch, stop=True)
    assert status == -signal.SIGTERM


def test_a_process_sees_the_end_of_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.stderr.write('up\\n'); sys.stdin.read()"

    async def scenario() -> int:
        process = await BrokerRun.start(SPEC, lambda text: None, lambda: None)
        assert process._process.stdin is not None
        process._process.stdin.close()
        return await process.wait()

    monkeypatch.setattr(broker, "_PROGRAM", ("-c", program))
    assert asyncio.run(scenario()) == 0


def test_a_process_reports_once_that_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; print('ready', flush=True); sys.stdin.readline(); print('x' * 300_000)"
    reports: list[str] = []

    async def scenario() -> int:
        ready = asyncio.Event()

        def on_ready() -> None:
            reports.append("ready")
            ready.set()

        process = await BrokerRun.start(SPEC, lambda text: None, on_ready)
        await ready.wait()
        assert process._process.stdin is not None
        process._process.stdin.close()
        return await process.wait()

    monkeypatch.setattr(broker, "_PROGRAM", ("-c", program))
    assert asyncio.run(scenario()) == 0
    assert reports == ["ready"]


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(0.1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_process_that_ran_for_a_minute_starts_again_at_once() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(ran) for ran in (1, 1, 60, 1)] == [0.5, 1, 0.5, 1]
