"""Random pauses of brokers, as a busy host, a slow disk or a hypervisor causes them.

`LAKELOG_SHAKE=seed` switches them on (`tests/conftest.py`). A pause is a SIGSTOP and a SIGCONT,
shorter than any session, so that a test has no excuse. Only processes that this process started
are paused: `BrokerProcess` names each one here, and a file descriptor of it is kept, so that no
signal reaches another process that gets its id later.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from types import TracebackType
from typing import Self

VARIABLE = "LAKELOG_SHAKE"
_BETWEEN_S = (0.2, 1.5)
_PAUSE_S = (0.1, 0.5)


class Shaker:
    """A context manager that pauses one of the noted processes after the other, by its seed."""

    def __init__(self, seed: str) -> None:
        self.pauses = 0
        self._random = random.Random(seed)
        self._processes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shaker")

    def __enter__(self) -> Self:
        _shakers.append(self)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _shakers.remove(self)
        self._ending.set()
        self._thread.join()
        for pid in list(self._processes):
            self.spare(pid)

    def note(self, pid: int) -> None:
        """Pause this child, too, from now on. Waits for no pause that is under way."""
        if pid in self._processes:
            self.spare(pid)  # an earlier child, whose end was not seen yet, had the same id
        self._processes[pid] = os.pidfd_open(pid)

    def spare(self, pid: int) -> None:
        """Pause this process no more; return when it runs, if a pause is under way."""
        with self._lock:
            if (process := self._processes.pop(pid, None)) is not None:
                os.close(process)

    def _run(self) -> None:
        while not self._ending.wait(self._random.uniform(*_BETWEEN_S)):
            with self._lock:
                if self._processes:
                    self._pause(self._random.choice(list(self._processes)))

    def _pause(self, pid: int) -> None:
        process = self._processes[pid]
        try:
            signal.pidfd_send_signal(process, signal.SIGSTOP)
            self._ending.wait(self._random.uniform(*_PAUSE_S))
            signal.pidfd_send_signal(process, signal.SIGCONT)
        except ProcessLookupError:  # it has ended
            os.close(self._processes.pop(pid))
        else:
            self.pauses += 1


_shakers: list[Shaker] = []
"""The one of this process, if it has one."""


def note(pid: int) -> None:
    """Have a child paused at random, if this process shakes its brokers."""
    for shaker in _shakers:
        shaker.note(pid)


def spare(pid: int) -> None:
    """Have a child paused no more: a test decides itself when it runs."""
    for shaker in _shakers:
        shaker.spare(pid)
