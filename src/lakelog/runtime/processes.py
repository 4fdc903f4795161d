"""Helper processes: their start, and their set-up in the new process; the usage of this process.

A helper dies with the process that started it, even if that process is killed: otherwise the helper
could still write files that the next start of the broker removes. The kernel reports the resource
usage of a process (proc(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from lakelog.runtime.api import Child, ProcessUsage

_STATUS, _BOOT = Path("/proc/self/stat"), Path("/proc/stat")
_DESCRIPTORS = Path("/proc/self/fd")
_START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 19, 20, 21
"""Indexes of fields in /proc/self/stat after the name of the command."""


def process_usage() -> ProcessUsage:
    """Return the current usage. Raises `OSError`, for example when no descriptors are left."""
    fields = _STATUS.read_text().rpartition(")")[2].split()
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return ProcessUsage(
        cpu_s=cpu.ru_utime + cpu.ru_stime,
        resident_bytes=int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VIRTUAL_BYTES]),
        open_fds=len(list(_DESCRIPTORS.iterdir())) - 1,  # the listing itself uses one
        fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        start_time_s=_boot_time_s() + int(fields[_START_TICKS]) / ticks_per_s,
    )


def _boot_time_s() -> int:
    line = next(line for line in _BOOT.read_text().splitlines() if line.startswith("btime "))
    return int(line.split()[1])


_PR_SET_PDEATHSIG = 1
_NICENESS = 10


class ChildProcess:
    """A `Child` of `lakelog.runtime.api`, over pipes."""

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
        send_signal(self._process, signal.SIGKILL)
        self._input.close()
        return await self._process.wait()


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process that was started by asyncio; nothing if it has ended."""
    if process.returncode is not None:
        return
    # Not `process.send_signal`: it polls the process first. If it has just ended, that takes its
    # status away from the watcher of the loop, which then reports 255 (CPython's gh-87744).
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


class PythonProcesses:
    """The `Processes` of `lakelog.runtime.api`, with the Python of this process."""

    async def start(self, module: str) -> Child:
        command = (sys.executable, "-m", module, str(os.getpid()))
        return ChildProcess(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    def usage(self) -> ProcessUsage:
        return process_usage()


def become_helper(parent: int) -> None:
    """Make this process a helper of the process `parent`: niced, and killed when `parent` dies.

    A helper calls this first. Exits if `parent` is dead already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker handles ^C and then ends its helpers
    with contextlib.suppress(OSError, AttributeError):
        import ctypes  # only helpers pay for the import

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the broker is gone")
    os.nice(_NICENESS)
