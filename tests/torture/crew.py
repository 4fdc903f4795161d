"""The client processes of a run: started, stopped, killed and replaced."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from kafka_jars import java_command
from torture.servers import NUMBERS, PARTITIONS

_TESTS = Path(__file__).parents[1]
_LIBRARIES = ("kafka-python", "aiokafka")
_JAVA_PRODUCER = _TESTS / "java" / "NotingProducer.java"
_STOP_S = 240.0
_LARGEST_PORTION = 2000


def python_path() -> str:
    """Return this process's path with the tests before it, for programs of the tests."""
    return os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


class Crew:
    """Client programs by name, `<role>.<number>`, each with a journal, and their output."""

    def __init__(self, bootstrap: str, folder: Path, seed: int) -> None:
        self.journals = folder / "journals"
        self.journals.mkdir()
        self._printed = folder / "clients.stderr"
        self._bootstrap = bootstrap
        self._seed = seed
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lives = 0

    def start(self, name: str) -> None:
        """Start a client. A name may be started again, as another life."""
        self._lives += 1
        journal = self.journals / f"{name}.{self._lives}.jsonl"
        arguments = name, str(self._lives), self._bootstrap, str(journal), str(self._seed)
        with self._printed.open("ab") as printed:
            self._running[name] = subprocess.Popen(
                _command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env=os.environ | {"PYTHONPATH": python_path()},
            )

    def kill_one(self, rng: random.Random, names: Iterable[str]) -> str:
        """Kill one of these clients; return its name."""
        name = rng.choice([name for name in names if name in self._running])
        process = self._running.pop(name)
        process.kill()
        process.wait()
        return name

    def stop(self, roles: Iterable[str]) -> None:
        """Stop all clients of these roles after they have completed their requests."""
        names = [name for name in self._running if name.partition(".")[0] in set(roles)]
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        for name in names:
            status = self._running.pop(name).wait(_STOP_S)
            if status != 0:
                raise AssertionError(f"{name} ended with {status}: {self.printed()}")

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def has_ended(self) -> bool:
        """Return whether a client has ended by itself."""
        return any(process.poll() is not None for process in self._running.values())

    def check(self) -> None:
        """Check that no client has ended by itself."""
        ended = {name: p.poll() for name, p in self._running.items() if p.poll() is not None}
        assert not ended, f"clients ended: {ended}: {self.printed()}"

    def printed(self) -> str:
        if not self._printed.exists():
            return ""
        return self._printed.read_text(errors="replace")[-_LARGEST_PORTION:]


def _command(name: str, *arguments: str) -> list[str]:
    role = name.partition(".")[0]
    if role == "java":
        topic = NUMBERS, str(PARTITIONS)
        return java_command("tools", _JAVA_PRODUCER, name, *arguments, *topic)
    program = "library_process" if role in _LIBRARIES else "client_process"
    return [sys.executable, "-m", f"torture.{program}", name, *arguments]
