"""The resource usage of this process, as reported by the kernel (proc(5))."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from lakelog.runtime.api import ProcessUsage

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
