"""How long a partition may acknowledge nothing, on a machine that has other work, too.

The cluster promises one session and two seconds. A client needs some more to notice: the record
under way times out, and then a request to the former leader. The session is a time of the wall
clock. All the rest is work, which takes as much longer as the machine is slower than an idle one,
by the paces that a run has measured.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from torture.history import History
from torture.journal import Journal

_NS = 1_000_000_000
_WORK_S = 2.0
"""For elections and their metadata, beside the session."""
_CLIENT_S = 3.0
"""Of the pulse: 1.5 s for the record under way, 1 s for a request, 0.5 s for metadata."""
_LONGEST_S = 20.0
"""On any machine."""
_STEP_S, _SYNC_S = 0.03, 0.01
"""CPU time of one measurement, and the usual time of a sync."""
_EVERY_S = 1.0


class Patience:
    """The limits of one run.

    Args:
        session_s: the session timeout of the brokers.
    """

    def __init__(self, session_s: float, history: History) -> None:
        self._session_s = session_s
        self._paces = history.paces

    def between(self, start: int, end: float) -> float:
        """Return the limit in seconds of a silence between two times in nanoseconds."""
        end = max(end, start + _NS * (self._session_s + _WORK_S))
        paces = [pace for at, pace in self._paces if start <= at <= end + _NS]
        pace = max(1.0, sum(paces) / len(paces)) if paces else 1.0
        return min(self._session_s + (_WORK_S + _CLIENT_S) * pace, _LONGEST_S)


class Pace:
    """A context manager: a thread that measures how slow the machine is, and notes it."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._path = folder / "pace"
        self._journal = journal
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="pace")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            begun, cpu = time.monotonic(), time.thread_time()
            while time.thread_time() - cpu < _STEP_S:
                pass
            with self._path.open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
            factor = (time.monotonic() - begun) / (_STEP_S + _SYNC_S)
            self._journal.note("pace", factor=round(factor, 2))
