"""Faults that a test arms, for processes that `faults/sitecustomize.py` makes carry them out."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TIMEOUT_S = 600.0


class Kill(NamedTuple):
    """A process dies when it reaches a point.

    victim: `self` (the process at the point), `jvm` (the nearest Java above it: of an executor, or
    of the driver) or `driver`. With `pause` and `stop` the process waits, and the test does the
    rest. With `task` nothing dies: the point raises an error.
    """

    point: str
    victim: str


class Faults:
    """Arms one kill at a time; a file that a process takes means that the kill happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def environment(self) -> dict[str, str]:
        """Return the environment of processes that carry out the faults."""
        given = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join([str(HERE / "faults"), str(HERE.parent), given])
        return os.environ | {"PYTHONPATH": path, "LAKELOG_TEST_FAULTS": str(self.folder)}

    def arm(self, kill: Kill) -> Callable[[], bool]:
        """Arm a kill; return a function that returns whether it has happened since."""
        before = self.taken(kill.point)
        # Atomically, because processes of a dying driver may look for the file.
        unseen = self.folder / f"unseen-{kill.point}"
        unseen.write_text(kill.victim)
        unseen.rename(self.folder / kill.point)
        return lambda: self.taken(kill.point) > before

    def disarm(self, point: str) -> None:
        (self.folder / point).unlink(missing_ok=True)

    def taken(self, point: str) -> int:
        return len(list(self.folder.glob(f"taken-*-{point}")))

    def held(self, point: str) -> Path | None:
        """Return the file of a process that waits at a point."""
        return next(self.folder.glob(f"held-*-{point}"), None)

    def release(self, held: Path) -> None:
        """Let the waiting process continue, and the one above it that was stopped with it."""
        self._end(held, signal.SIGCONT)

    def kill(self, held: Path) -> None:
        """Kill the waiting process."""
        self._end(held, signal.SIGKILL)

    def _end(self, held: Path, number: signal.Signals) -> None:
        pids = held.read_text().split()
        held.rename(held.with_name(held.name.replace("held", "taken", 1)))
        for pid in pids:
            # Spark may have ended the waiting process with its query.
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)
