"""Jobs of one table at once, which tests kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from spark.kill_faults import HERE, TIMEOUT_S, Faults, Kill
from waiting import eventually

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A process in a group of its own, so that its Java ends with it."""

    process: subprocess.Popen[bytes]
    log: Path

    def is_killed(self) -> bool:
        """Return whether the process has died by a kill of it or of its Java."""
        status = self.process.poll()
        if status is None:
            return False
        is_java = "Java process ended unexpectedly" in self.text()
        assert status == -signal.SIGKILL or is_java, self.text()[-3000:]
        return True

    def text(self) -> str:
        """Return the log of the process."""
        return self.log.read_text(errors="replace")

    def has_logged(self, text: str, start: int) -> bool:
        """Return whether the log has the text after its first `start` characters."""
        return text in self.text()[start:]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Jobs:
    """Two processes of one command at once; a killed one is replaced."""

    def __init__(self, command: Sequence[str], faults: Faults, folder: Path) -> None:
        self._command = command
        self._environment = faults.environment() | {"NO_COLOR": "1"}
        self._folder = folder
        self._started = 0
        self.running = [self._start() for _ in range(2)]

    def _start(self) -> Job:
        log = self._folder / f"job-{self._started}.log"
        self._started += 1
        with log.open("wb") as errors:
            process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        return Job(process, log)

    def replace_dead(self) -> None:
        """Start a process for each dead one."""
        for dead in [job for job in self.running if job.is_killed()]:
            self.running[self.running.index(dead)] = self._start()

    def interrupt(self) -> None:
        """Send SIGINT to both groups, as ^C does."""
        for job in self.running:
            os.killpg(job.process.pid, signal.SIGINT)

    def await_end(self) -> None:
        """Wait until both have ended by themselves."""
        for job in self.running:
            assert job.process.wait(TIMEOUT_S) == 0, job.text()[-3000:]

    def end(self) -> None:
        for job in self.running:
            job.end()


class Workers(Jobs):
    """Two processes of a script at once. Its last argument is a file whose existence ends them."""

    def __init__(self, script: str, words: Sequence[str], faults: Faults, folder: Path) -> None:
        self._stop = folder / "stop"
        super().__init__(
            [sys.executable, str(HERE / script), *words, str(self._stop)], faults, folder
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def finish(self) -> None:
        """Wait until both have done their work."""
        self.replace_dead()
        self._stop.touch()
        self.await_end()


def hold(faults: Faults, point: str, work: Callable[[], object]) -> Path:
    """Do some work until a process waits at a point; return its file."""
    faults.arm(Kill(point, "pause"))
    return work_until(lambda: faults.held(point), f"a process waits at {point}", work)


def work_until(condition: Callable[[], T | None], what: str, work: Callable[[], object]) -> T:
    """Do some work again and again until the condition holds, and return its value."""

    def value_or_work() -> T | None:
        if not (value := condition()):
            work()
        return value

    return eventually(value_or_work, TIMEOUT_S, what, every_s=0.2)
