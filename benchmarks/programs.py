"""The load generators: C programs of this folder, compiled when a source is newer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

from brokers import BrokerError

_HERE = Path(__file__).parent
_PROCESS_SECONDS_MAX = 90


class Server(Protocol):
    """The target of a program."""

    name: str

    @property
    def port(self) -> int: ...


class Program:
    """`<name>.c`, compiled into a folder of its own choice."""

    def __init__(self, name: str, build_folder: Path) -> None:
        self._name = name
        self._path = build_folder / name
        sources = [_HERE / f"{name}.c", *_HERE.glob("*.h")]
        newest = max(source.stat().st_mtime for source in sources)
        if not self._path.exists() or self._path.stat().st_mtime < newest:
            self._compile(sources[0])

    def _compile(self, source: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise BrokerError("cc not found: install a C compiler (Debian: apt-get install gcc)")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O2", "-Wall", "-o", str(self._path), str(source), "-lm"]
        subprocess.run(command, check=True)

    def start(self, broker: Server, *words: str, **arguments: object) -> subprocess.Popen[str]:
        """Runs it against a broker; `finish` waits for it."""
        given = [f"{name}={value}" for name, value in arguments.items()]
        return subprocess.Popen(
            [self._path, *words, f"port={broker.port}", *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], broker: Server) -> dict[str, Any]:
        """Return its output, possibly empty."""
        try:
            printed, complaint = process.communicate(timeout=_PROCESS_SECONDS_MAX)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode:
            raise BrokerError(f"{self._name} against {broker.name}: {complaint.strip()}")
        found: dict[str, Any] = json.loads(printed or "{}")
        return found

    def run(self, broker: Server, *words: str, **arguments: object) -> dict[str, Any]:
        return self.finish(self.start(broker, *words, **arguments), broker)
