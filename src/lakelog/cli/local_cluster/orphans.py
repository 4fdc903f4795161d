"""Ends processes that would outlive their starter.

A program of another project does not notice that its starter was killed. A shell waits for the end
of its input, which comes with the death of the process that holds the other end of the pipe, and
kills the processes that were named last.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

_SCRIPT = 'while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -9 $pids'


class OrphanGuard:
    """Kills the named processes when this process ends."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            text=True,
        )

    def name(self, pids: Iterable[int]) -> None:
        """Replace the process ids; a process is left out before it is reaped."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, pids)) + "\n")
        self._shell.stdin.flush()

    def close(self) -> None:
        """Kill nothing any more."""
        self.name(())
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
