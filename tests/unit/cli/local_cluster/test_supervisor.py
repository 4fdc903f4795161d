from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster import supervisor
from lakelog.cli.local_cluster.supervisor import (
    BrokerRun,
    BrokerSpec,
    Restarts,
    Supervisor,
    ended_how,
)

_SERVES = (
    "import sys, signal; print('ready', flush=True); sys.stderr.write('up\\n'); signal.pause()"
)
_STOPS = "import sys, signal; signal.signal(15, lambda *_: sys.exit(0)); " + _SERVES
_STOPS_REFUSING = "import sys, signal; signal.signal(10, lambda *_: sys.exit(6)); " + _STOPS
"""SIGUSR1 makes it refuse to go on."""
SPECS = [BrokerSpec(node_id, f"127.0.0.1:{node_id}", (str(node_id),)) for node_id in (1, 2)]


class Cluster:
    """A supervisor of programs in the place of brokers, and its lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: str = _STOPS) -> None:
        monkeypatch.setattr(supervisor, "_PROGRAM", ("-c", program))
        self.reports: list[str] = []
        self.up: list[int] = []
        self.complete_at = 2
        """Number of lines of brokers after which all of them serve."""
        self.stop_at = 2
        """Number of lines after which a signal arrives."""
        self.killed: int | None = None
        self.refusing: list[int] = []
        self.pids: Mapping[int, int] = {}

    def run(self) -> None:
        asyncio.run(asyncio.wait_for(self.supervisor().run(), 120))

    def supervisor(self) -> Supervisor:
        return Supervisor(
            SPECS, None, is_complete=self._is_complete, report=self._report, line=self._line
        )

    def _report(self, text: str) -> None:
        self.reports.append(text)
        if "refuses" in text and len(self.refusing) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def _line(self, node_id: int, line: bytes) -> None:
        self.up.append(node_id)
        if len(self.up) >= self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    def _is_complete(self, pids: dict[int, int]) -> bool:
        self.pids = pids
        if len(self.up) < self.complete_at:
            return False
        if self.killed is not None:
            os.kill(pids[self.killed], signal.SIGKILL)
        for node_id in self.refusing:
            os.kill(pids[node_id], signal.SIGUSR1)
        return True


class _LateLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can jump; `then` is called after all timers of that time."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._late_s = 0.0
        super().__init__()
        self._then = then

    def time(self) -> float:
        return super().time() + self._late_s

    def pass_a_day(self) -> None:
        self._late_s += 86_400.0
        self._go_round(20)

    def _go_round(self, turns: int) -> None:
        if turns:
            self.call_soon(self._go_round, turns - 1)
        else:
            self._then()


def test_a_signal_stops_all_brokers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.run()
    assert sorted(cluster.up) == [1, 2]
    assert cluster.reports == ["Stopping"]


def test_a_broker_may_need_a_day_until_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    wait = f"import sys; sys.argv[1] == '1' and open({str(gate)!r}).read(1); "
    cluster = Cluster(monkeypatch, wait + _STOPS)
    opened = os.open(gate, os.O_RDWR)  # no writer waits for a reader that has ended
    loop = _LateLoop(lambda: os.write(opened, b"."))
    line = cluster._line

    def note_line(node_id: int, text: bytes) -> None:
        if not cluster.up:
            loop.pass_a_day()
        line(node_id, text)

    cluster._line = note_line  # type: ignore[method-assign,assignment]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(cluster.supervisor().run())
    os.close(opened)
    assert cluster.up == [2, 1]
    assert cluster.reports == ["Stopping"]


def test_a_killed_broker_is_reported_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.stop_at, cluster.killed = 3, 2
    cluster.run()
    assert sorted(cluster.up) == [1, 2, 2]
    pid = cluster.pids[2]
    report = f"broker 2 (pid {pid}) was killed by SIGKILL; it starts again in 0.5 s"
    assert cluster.reports == [report, "Stopping"]


def test_a_broker_that_does_not_start_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "import sys; sys.argv[1] == '1' and sys.exit(7); " + _STOPS)
    cluster.stop_at = 99
    with pytest.raises(
        CliError, match=r"broker 1 \(pid \d+\) ended with status 7 before"
    ) as caught:
        cluster.run()
    assert caught.value.code == "LL0705"


def test_a_broker_that_refuses_to_start_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "import sys; sys.argv[1] == '1' and sys.exit(6); " + _STOPS)
    cluster.stop_at = 99
    with pytest.raises(
        CliError, match=r"broker 1 \(pid \d+\) ended with status 6 before"
    ) as caught:
        cluster.run()
    assert caught.value.code == "LL0709"
    assert caught.value.entry.exit == 6


def test_a_broker_that_refuses_to_go_on_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, _STOPS_REFUSING)
    cluster.stop_at, cluster.refusing = 99, [2]
    cluster.run()
    assert sorted(cluster.up) == [1, 2]
    refused = f"broker 2 (pid {cluster.pids[2]}) ended with status 6: it refuses to run, and is not"
    assert cluster.reports == [f"{refused} started again", "Stopping"]


def test_the_cluster_ends_with_the_last_broker_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, _STOPS_REFUSING)
    cluster.stop_at, cluster.refusing = 99, [1, 2]
    with pytest.raises(CliError, match="every broker has refused to run") as caught:
        cluster.run()
    assert caught.value.code == "LL0709"


def test_an_error_of_the_check_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.stop_at, cluster.killed = 99, 9  # no such broker
    with pytest.raises(KeyError):
        cluster.run()


def test_an_exit_status_is_a_phrase() -> None:
    assert ended_how(-9) == "was killed by SIGKILL"
    assert ended_how(1) == "ended with status 1"


SPEC = BrokerSpec(1, "127.0.0.1:9092", ("--node-id", "1"))


def run(program: str, monkeypatch: pytest.MonkeyPatch, *, stop: bool = False) -> tuple[int, bytes]:
    """Return the exit status and the lines of a program in the place of a broker."""
    monkeypatch.setattr(supervisor, "_PROGRAM", ("-c", program))
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

    monkeypatch.setattr(supervisor, "_PROGRAM", ("-c", program))
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

    monkeypatch.setattr(supervisor, "_PROGRAM", ("-c", program))
    assert asyncio.run(scenario()) == 0
    assert reports == ["ready"]


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(0.1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_process_that_ran_for_a_minute_starts_again_at_once() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(ran) for ran in (1, 1, 60, 1)] == [0.5, 1, 0.5, 1]
