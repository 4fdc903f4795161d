"""A real ZooKeeper ensemble on loopback, from the jars that PySpark contains.

Servers are started, killed and restarted by their numbers, 1 to 3. A tick is short, so that
sessions may be, too.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self

_START_TIMEOUT_S = 120.0
_TICK_MS = 200
SESSION_TIMEOUT_S = 4.0
_SETTINGS = """\
tickTime={tick_ms}
initLimit=50
syncLimit=25
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
"""
_JVM = (
    "java",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
)


class ZooKeeperEnsemble:
    """A context manager: all servers run inside, and are ended on leaving."""

    def __init__(self, folder: Path, servers: int = 3) -> None:
        self._folder = folder
        self._numbers = range(1, servers + 1)
        ports = iter(_free_ports(3 * servers))
        self._ports = {number: next(ports) for number in self._numbers}
        self._quorum = [
            f"server.{number}=127.0.0.1:{next(ports)}:{next(ports)}" for number in self._numbers
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self._ports.values())

    def __enter__(self) -> Self:
        atexit.register(self.end)
        for number in self._numbers:
            self.start(number)
        for number in self._numbers:
            self.wait_for(number)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, number: int) -> None:
        folder = self._folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(str(number))
        settings = _SETTINGS.format(tick_ms=_TICK_MS, folder=folder, port=self._ports[number])
        config = folder / "zoo.cfg"
        config.write_text(settings + "\n".join(self._quorum) + "\n")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (folder / "out.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*_JVM, "-cp", _class_path(), main, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
            )

    def wait_for(self, number: int) -> None:
        """Return when this server takes part in a quorum."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._serves(number):
            if self._processes[number].poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"ZooKeeper {number} did not start: see {self._folder}")
            time.sleep(0.05)

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def pause(self, number: int) -> None:
        """Stop a process: its connections stay open, and nothing answers."""
        os.kill(self._processes[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self._processes[number].pid, signal.SIGCONT)

    def end(self) -> None:
        for number in list(self._processes):
            self.kill(number)

    def _serves(self, number: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._ports[number]), 5) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return False
        return b"Mode: " in answer


@functools.cache
def shared() -> ZooKeeperEnsemble:
    """Return the ensemble of this process, which no test may damage. It ends with the process."""
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    ensemble = ZooKeeperEnsemble(folder)
    ensemble.__enter__()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ensemble


def _class_path() -> str:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return f"{Path(spec.origin).parent}/jars/*"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
