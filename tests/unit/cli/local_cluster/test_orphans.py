from __future__ import annotations

import subprocess
import sys

from lakelog.cli.local_cluster.orphans import OrphanGuard

_STARTER = """
import os, subprocess, sys
from lakelog.cli.local_cluster.orphans import OrphanGuard
guard = OrphanGuard()
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
guard.name([child.pid])
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
_LIMIT_S = 60


def test_named_processes_end_with_a_killed_starter() -> None:
    starter = subprocess.run(
        [sys.executable, "-c", _STARTER], capture_output=True, text=True, timeout=_LIMIT_S
    )
    pid = int(starter.stdout)
    # The shell that kills the process is its only parent's other child: wait until it is gone.
    subprocess.run(
        ["sh", "-c", f"while kill -0 {pid} 2>/dev/null; do sleep 0.05; done"],
        check=True,
        timeout=_LIMIT_S,
    )


def test_a_closed_guard_kills_nothing() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        guard = OrphanGuard()
        guard.name([process.pid])
        guard.close()
        assert process.poll() is None
        process.kill()
