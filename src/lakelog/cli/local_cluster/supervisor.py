"""Runs the processes of a cluster on this host until a signal.

A process that ends by itself is reported, and started again after a pause, except in two cases. If
a broker ends before the cluster was complete for the first time, the cluster ends: a broker with
wrong arguments would never start. A broker that ended with status 6 has refused its metadata store
or its folder, as it would again: it is not started, and the cluster ends with the last of them.

The first signal stops all brokers in order and then ends the ensemble; a second one kills them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lakelog.cli.catalog import ExitCode
from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble
from lakelog.runtime.posix import send_signal

_FIRST_S = 0.5
_LONGEST_S = 30.0
_STEADY_S = 60.0


class Restarts:
    """The pauses of one process: they double until it has run for a minute."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_S

    def pause_s(self, ran_s: float) -> float:
        """Return the next pause in seconds, given how long the process has run."""
        if ran_s >= _STEADY_S:
            self._pause_s = _FIRST_S
        pause = self._pause_s
        self._pause_s = min(2 * pause, _LONGEST_S)
        return pause


# -P: modules in the working directory do not take the place of others.
_PROGRAM = ("-P", "-m", "lakelog.cli.attached_broker")
_CHUNK_BYTES = 1 << 16
_LINE_BYTES_MAX = 1 << 16
"""A longer line is divided, so that a broker cannot make this process keep more."""


class BrokerSpec(NamedTuple):
    """Node id, HOST:PORT of its listener, and the arguments of `lakelog serve`."""

    node_id: int
    address: str
    arguments: Sequence[str]


class BrokerRun:
    """One process of a broker, from its start to its end."""

    def __init__(
        self, process: Process, line: Callable[[bytes], None], on_ready: Callable[[], None]
    ) -> None:
        self._process = process
        self._readiness = asyncio.ensure_future(self._read_readiness(on_ready))
        self._log = asyncio.ensure_future(self._read_log(line))

    @classmethod
    async def start(
        cls, spec: BrokerSpec, line: Callable[[bytes], None], on_ready: Callable[[], None]
    ) -> BrokerRun:
        """Start the process; `line` is called with each line of its log, without the line's end.

        `on_ready` is called once, when the broker accepts connections.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_PROGRAM,
            *spec.arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            process_group=0,  # ^C is for the supervisor, which then stops the broker
        )
        return cls(process, line, on_ready)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Let the broker stop in order; nothing if it has ended."""
        send_signal(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once; nothing if it has ended."""
        send_signal(self._process, signal.SIGKILL)

    async def wait(self) -> int:
        """Return the exit status after the end of the process and of its log."""
        status = await self._process.wait()
        await self._log
        await self._readiness
        assert self._process.stdin is not None
        self._process.stdin.close()
        return status

    async def _read_readiness(self, on_ready: Callable[[], None]) -> None:
        """Read the line with which the program reports that it is ready, and anything after it."""
        assert self._process.stdout is not None
        if await self._process.stdout.read(_CHUNK_BYTES):
            on_ready()
        while await self._process.stdout.read(_CHUNK_BYTES):
            pass

    async def _read_log(self, line: Callable[[bytes], None]) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            for text in whole:
                line(text)
            if len(rest) >= _LINE_BYTES_MAX:
                line(rest)
                rest = b""
        if rest:
            line(rest)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STOP_TIMEOUT_S = 60.0
_ENSEMBLE_CHECK_S = 1.0
_COMPLETE_CHECK_S = 0.1


class Supervisor:
    """The brokers, and the ensemble if there is one.

    Args:
        is_complete: returns in a thread whether all brokers serve, given the ids of their
            processes by node id. It is called when all accept connections, until it returns true.
            An exception ends the cluster.
        report: prints a line of this process; `line` prints a line that a broker has logged.
        noun: names a broker in lines and errors.
    """

    def __init__(
        self,
        brokers: Sequence[BrokerSpec],
        ensemble: ZooKeeperEnsemble | None,
        *,
        is_complete: Callable[[dict[int, int]], bool],
        report: Callable[[str], None],
        line: Callable[[int, bytes], None],
        noun: str = "broker",
    ) -> None:
        self._brokers = brokers
        self._ensemble = ensemble
        self._check_complete = is_complete
        self._report = report
        self._line = line
        self._noun = noun
        self._refusing: set[int] = set()
        self._runs: dict[int, BrokerRun] = {}
        self._unready = {broker.node_id for broker in brokers}
        self._all_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_complete = False
        self._failure: CliError | None = None

    async def run(self) -> None:
        """Return after a signal, when all brokers have stopped.

        Raises `CliError` LL0705 if a broker does not start, LL0709 if one refuses to start or all
        of them refuse to go on, and the exceptions of `is_complete`.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        tasks = [asyncio.ensure_future(self._keep(broker)) for broker in self._brokers]
        if self._ensemble is not None:
            tasks.append(asyncio.ensure_future(self._keep_ensemble(self._ensemble)))
        completing = asyncio.ensure_future(self._completed())
        await self._stopping.wait()
        completing.cancel()
        self._stop()
        await asyncio.gather(*tasks)
        await asyncio.gather(completing, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        if not completing.cancelled() and (error := completing.exception()) is not None:
            raise error

    async def _keep(self, spec: BrokerSpec) -> None:
        """Start the broker again and again until the end."""
        restarts = Restarts()
        while not self._stopping.is_set():
            begun = time.monotonic()
            run = await BrokerRun.start(
                spec,
                lambda line: self._line(spec.node_id, line),
                lambda: self._became_ready(spec.node_id),
            )
            self._runs[spec.node_id] = run
            if self._stopping.is_set():
                run.stop()
            status = await run.wait()
            if self._stopping.is_set():
                return
            ended = f"{self._noun} {spec.node_id} (pid {run.pid}) {ended_how(status)}"
            is_refusal = status == ExitCode.CONFLICT
            if not self._is_complete:
                code = "LL0709" if is_refusal else "LL0705"
                self._fail(CliError(code, f"{ended} before the cluster was complete"))
                return
            if is_refusal:
                self._refused(spec.node_id, ended)
                return
            pause_s = restarts.pause_s(time.monotonic() - begun)
            self._report(f"{ended}; it starts again in {pause_s:g} s")
            await self._pause(pause_s)

    async def _keep_ensemble(self, ensemble: ZooKeeperEnsemble) -> None:
        """Start servers of the ensemble that ended by themselves."""
        while not self._stopping.is_set():
            for number, status in ensemble.ended().items():
                self._report(f"ZooKeeper server {number} {ended_how(status)}; it starts again")
                ensemble.start(number)
            await self._pause(_ENSEMBLE_CHECK_S)

    def _became_ready(self, node_id: int) -> None:
        self._unready.discard(node_id)
        if not self._unready:
            self._all_ready.set()

    async def _completed(self) -> None:
        """Return when all brokers serve.

        A broker that ends before that ends the cluster, so all brokers that were ready still run.
        Whether they serve is known only by asking them.
        """
        await self._all_ready.wait()
        pids = {node_id: run.pid for node_id, run in self._runs.items()}
        try:
            self._is_complete = await asyncio.to_thread(self._check_complete, pids)
            while not self._is_complete:
                await asyncio.sleep(_COMPLETE_CHECK_S)
                self._is_complete = await asyncio.to_thread(self._check_complete, pids)
        except Exception:
            self._stopping.set()
            raise

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until the end of the cluster."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _refused(self, node_id: int, ended: str) -> None:
        self._report(f"{ended}: it refuses to run, and is not started again")
        self._refusing.add(node_id)
        if len(self._refusing) == len(self._brokers):
            self._fail(CliError("LL0709", f"every {self._noun} has refused to run"))

    def _fail(self, error: CliError) -> None:
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    def _signalled(self) -> None:
        if not self._stopping.is_set():
            self._report("Stopping")
            self._stopping.set()
            return
        for run in self._runs.values():
            run.kill()

    def _stop(self) -> None:
        """Stop all brokers that run; after a minute, kill them."""
        for run in self._runs.values():
            run.stop()
        loop = asyncio.get_running_loop()
        for node_id, run in self._runs.items():
            loop.call_later(_STOP_TIMEOUT_S, self._kill_late, node_id, run)

    def _kill_late(self, node_id: int, run: BrokerRun) -> None:
        self._report(f"{self._noun} {node_id} did not stop within {_STOP_TIMEOUT_S:g} s")
        run.kill()


def ended_how(status: int) -> str:
    """Return an exit status in words; it is negative for a signal."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
