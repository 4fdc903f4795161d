"""Helper processes: starting them, and being one.

A helper dies with the process that started it, however that ends: it may be writing files which
the next start of the broker is about to remove.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process

from lakelog.runtime.api import Child, ProcessUsage
from lakelog.runtime.usage import process_usage

_PR_SET_PDEATHSIG = 1
_NICENESS = 10


class ChildProcess:
    """See `lakelog.runtime.api.Child`."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    async def send(self, line: bytes) -> None:
        self._input.write(line + b"\n")
        await self._input.drain()

    async def receive(self) -> bytes:
        line = await self._output.readline()
        return line[:-1] if line.endswith(b"\n") else b""

    async def end(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._input.close()
        return await self._process.wait()


class PythonProcesses:
    """See `lakelog.runtime.api.Processes`."""

    async def start(self, module: str) -> Child:
        command = (sys.executable, "-m", module, str(os.getpid()))
        return ChildProcess(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    def usage(self) -> ProcessUsage:
        return process_usage()


def become_helper(parent: int) -> None:
    """Called first in a helper: it yields to the broker, and dies when process `parent` does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the broker, which then ends this
    with contextlib.suppress(OSError, AttributeError):
        import ctypes  # in the helper alone

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the broker is gone")
    os.nice(_NICENESS)
