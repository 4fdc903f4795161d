"""The client processes of the endurance test: started, stopped, killed and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_PROGRAM = Path(__file__).with_name("client_process.py")
_STOP_S = 180.0
_LARGEST_PORTION = 2000


class Crew:
    """Client programs by name, `<kind>.<number>`, each with a journal, and their output."""

    def __init__(self, bootstrap: str, folder: Path, seed: int) -> None:
        self.journals = folder / "journals"
        self.journals.mkdir()
        self._printed = folder / "clients.stderr"
        self._bootstrap = bootstrap
        self._seed = seed
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begun = 0

    def start(self, name: str) -> None:
        """Start a client. A name may be started again and continues its journal."""
        kind = name.partition(".")[0]
        self._begun += 1
        journal = self.journals / f"{name}.jsonl"
        arguments = kind, self._bootstrap, name, str(journal), str(self._seed), str(self._begun)
        with self._printed.open("ab") as printed:
            self._running[name] = subprocess.Popen(
                [sys.executable, str(_PROGRAM), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env=os.environ | {"PYTHONPATH": str(_TESTS)},
            )

    def stop(self, kind: str) -> None:
        """Stop all clients of a kind after they have completed their requests."""
        names = [name for name in self._running if name.partition(".")[0] == kind]
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        for name in names:
            status = self._running.pop(name).wait(_STOP_S)
            assert status == 0, f"{name} ended with {status}: {self.printed()}"

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def check(self) -> None:
        """Check that no client has ended by itself."""
        ended = {name: p.poll() for name, p in self._running.items() if p.poll() is not None}
        assert not ended, f"{ended}: {self.printed()}"

    def printed(self) -> str:
        return self._printed.read_text(errors="replace")[-_LARGEST_PORTION:]
