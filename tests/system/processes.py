"""Awaiting the end of a process that is not a child of this one."""

from __future__ import annotations

import os
import select

_TIMEOUT_S = 60


def await_exit(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([process], [], [], _TIMEOUT_S)
    finally:
        os.close(process)
    assert ended, f"process {pid} still runs"
