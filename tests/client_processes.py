"""Client programs in processes of their own: started, stopped, killed and replaced."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_TESTS = Path(__file__).parent
_STOP_S = 240.0
_LARGEST_PORTION = 2000


def python_path() -> str:
    """Return this process's path with the tests before it, for programs of the tests."""
    return os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


class ClientProcesses:
    """Clients by name, `<role>.<number>`, and their output.

    Args:
        folder: for `journals`, which the clients write, and for their output.
        command: returns the command line of a client, given its name and a number that is new for
            each process.
    """

    def __init__(self, folder: Path, command: Callable[[str, int], Sequence[str]]) -> None:
        self.journals = folder / "journals"
        self.journals.mkdir()
        self._command = command
        self._printed = folder / "clients.stderr"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begun = 0

    def start(self, name: str) -> None:
        """Start a client, or another process of it."""
        self._begun += 1
        with self._printed.open("ab") as printed:
            self._running[name] = subprocess.Popen(
                self._command(name, self._begun),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env=os.environ | {"PYTHONPATH": python_path()},
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_one(self, rng: random.Random, names: Iterable[str]) -> str:
        """Kill one of these clients; return its name."""
        name = rng.choice([name for name in names if name in self._running])
        self.kill(name)
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
        """Kill all clients."""
        for name in list(self._running):
            self.kill(name)

    def has_ended(self) -> bool:
        """Return whether a client has ended by itself."""
        return any(process.poll() is not None for process in self._running.values())

    def check(self) -> None:
        """Check that no client has ended by itself."""
        ended = {name: p.poll() for name, p in self._running.items() if p.poll() is not None}
        assert not ended, f"clients ended: {ended}: {self.printed()}"

    def printed(self) -> str:
        """Return the end of their output."""
        if not self._printed.exists():
            return ""
        return self._printed.read_text(errors="replace")[-_LARGEST_PORTION:]
