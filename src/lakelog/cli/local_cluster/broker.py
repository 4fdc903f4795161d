"""One broker of a local cluster: its process, its log lines, and the pauses before restarts."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
