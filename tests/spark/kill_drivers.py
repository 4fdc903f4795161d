"""Drivers of Spark that tests kill."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spark.kill_faults import HERE, TIMEOUT_S, Faults
from waiting import eventually


class Driver:
    """A process of a script, which prints `ready` when it is warm.

    Its last argument is the file for its log. failures: the lines that begin with `failed` or
    `ended`.
    """

    def __init__(self, words: Sequence[str], log: Path, faults: Faults) -> None:
        script, *arguments = words
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / script), *arguments, str(log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=faults.environment(),
            )
        self._is_ready = False
        self.failures: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("failed", "ended")):
                self.failures.append(line)
            else:
                self._lines.put(line.strip())

    def expect(self) -> str:
        """Return the next line; a driver that fails before it fails the test."""
        return eventually(self._next_line, TIMEOUT_S, "the next line of a driver")

    def _next_line(self) -> str | None:
        try:
            return self._lines.get(timeout=0.2)
        except queue.Empty:
            assert not self.failures, self.failures[-1]
            return None

    def await_ready(self) -> None:
        if not self._is_ready:
            assert self.expect() == "ready"
            self._is_ready = True

    def go(self, words: Sequence[str]) -> None:
        """Give the driver work, once it is ready."""
        self.await_ready()
        self._write(" ".join(words))

    def stay_down(self) -> None:
        """Have the driver end with its next failure."""
        self._write("stay-down")

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def is_dead(self, within_s: float) -> bool:
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Fleet:
    """Drivers of one script and one folder of faults.

    spares: warm drivers in waiting; fewer when there have been `limit` drivers in all.
    """

    def __init__(
        self, folder: Path, *words: str, spares: int = 0, limit: int | None = None
    ) -> None:
        self.folder = folder
        self.faults = Faults(folder / "faults")
        self.drivers: list[Driver] = []
        self._words = words
        self._waiting: list[Driver] = []
        self._spares = spares
        self._limit = limit
        self.current = self.next()

    def next(self) -> Driver:
        """Return the next driver, which replaces the present one."""
        while len(self._waiting) <= self._spares and len(self.drivers) != self._limit:
            log = self.folder / f"driver-{len(self.drivers)}.log"
            self._waiting.append(Driver(self._words, log, self.faults))
            self.drivers.append(self._waiting[-1])
        self.current = self._waiting.pop(0)
        return self.current

    def spare(self) -> Driver:
        """Return the driver that would be the next one, when it is warm."""
        self._waiting[0].await_ready()
        return self._waiting[0]

    def end(self) -> None:
        for driver in self.drivers:
            driver.end()


@contextmanager
def ended(fleet: Fleet) -> Iterator[Fleet]:
    """End all drivers after the block."""
    try:
        yield fleet
    finally:
        fleet.end()
