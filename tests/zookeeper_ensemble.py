"""A real ZooKeeper ensemble on loopback, from the jars that PySpark contains.

Servers are started, killed and restarted by their numbers, 1 to 3. A tick is short, so that
sessions may be, too. Each server may have an address of its own, and a command that runs it there.
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
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Self

_START_TIMEOUT_S = 120.0
_TICK_MS = 200
SESSION_TIMEOUT_S = 4.0
_SETTINGS = """\
tickTime={tick_ms}
initLimit=50
syncLimit=25
dataDir={folder}
clientPort={port}
clientPortAddress={address}
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


class Home(NamedTuple):
    """The address of a server, and the command that runs another one there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


class ZooKeeperEnsemble:
    """A context manager: all servers run inside, and are ended on leaving."""

    def __init__(self, folder: Path, homes: Sequence[Home] = (Home(),) * 3) -> None:
        self._folder = folder
        self._homes = dict(enumerate(homes, 1))
        ports = iter(_free_ports(3 * len(homes)))
        self._ports = {number: next(ports) for number in self._homes}
        self._quorum = [
            f"server.{number}={home.address}:{next(ports)}:{next(ports)}"
            for number, home in self._homes.items()
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(f"{self._homes[at].address}:{port}" for at, port in self._ports.items())

    def __enter__(self) -> Self:
        atexit.register(self.end)
        for number in self._homes:
            self.start(number)
        for number in self._homes:
            self.wait_for(number)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, number: int) -> None:
        folder = self._folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(str(number))
        home = self._homes[number]
        settings = _SETTINGS.format(
            tick_ms=_TICK_MS, folder=folder, address=home.address, port=self._ports[number]
        )
        config = folder / "zoo.cfg"
        config.write_text(settings + "\n".join(self._quorum) + "\n")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (folder / "out.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*home.prefix, *_JVM, "-cp", _class_path(), main, str(config)],
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
            address = self._homes[number].address, self._ports[number]
            with socket.create_connection(address, 5) as connection:
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
