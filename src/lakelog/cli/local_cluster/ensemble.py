"""A ZooKeeper ensemble on this host, from the jars that PySpark contains.

Servers are started, killed and restarted by their numbers, from 1 on. A tick is short, so that
sessions may be, too. Each server may have an address of its own, and a command that runs it there.

A program of another project does not notice that its starter was killed. A shell waits for the end
of its input, which comes with the death of the process that holds the other end of the pipe, and
kills the processes that were named last.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Self

from lakelog.cli.local_cluster.reservations import free_ports
from lakelog.spark.session import JavaMissingError, require_java

_SCRIPT = 'while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -9 $pids'


class OrphanGuard:
    """Kills the named processes when this process ends."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            text=True,
        )

    def name(self, pids: Iterable[int]) -> None:
        """Replace the process ids; a process is left out before it is reaped."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, pids)) + "\n")
        self._shell.stdin.flush()

    def close(self) -> None:
        """Kill nothing any more."""
        self.name(())
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


_START_TIMEOUT_S = 120.0
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 5.0
_TICK_MS = 200
_SESSION_TIMEOUT_MAX_MS = 60_000
SESSION_TIMEOUT_S = 4.0
"""A short session, of 20 ticks. A client may ask for up to a minute, and gets it."""
_SETTINGS = """\
tickTime={tick_ms}
maxSessionTimeout={session_timeout_max_ms}
initLimit=50
syncLimit=25
dataDir={folder}
clientPort={port}
clientPortAddress={address}
admin.enableServer=false
maxClientCnxns=0
"""
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class EnsembleError(Exception):
    """The ensemble cannot run. The text states the reason; `needs` is a missing program, if any."""

    def __init__(self, text: str, needs: str = "") -> None:
        super().__init__(text)
        self.needs = needs


class Home(NamedTuple):
    """The address of a server, and the command that runs another one there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


class ZooKeeperEnsemble:
    """A context manager: all servers run inside, and are ended on leaving.

    folder: of the servers' data and logs, which stay. The ports are other ones each time.
    """

    def __init__(self, folder: Path, homes: Sequence[Home] = (Home(),) * 3) -> None:
        self._folder = folder
        self._homes = dict(enumerate(homes, 1))
        ports = iter(free_ports("127.0.0.1", 3 * len(homes)))
        self._ports = {number: next(ports) for number in self._homes}
        self._quorum = [
            f"server.{number}={home.address}:{next(ports)}:{next(ports)}"
            for number, home in self._homes.items()
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._guard: OrphanGuard | None = None
        self._command: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """HOST:PORT of each server, in the order of their numbers."""
        return tuple(f"{self._homes[at].address}:{port}" for at, port in self._ports.items())

    def __enter__(self) -> Self:
        """Start all servers, and wait for their quorum. Raises `EnsembleError`."""
        self._command = _command()
        self._guard = OrphanGuard()
        try:
            for number in self._homes:
                self.start(number)
            for number in self._homes:
                self.wait_for(number)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, number: int) -> None:
        """Start a server, with the data of its former process."""
        folder = self._folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(str(number))
        home = self._homes[number]
        settings = _SETTINGS.format(
            tick_ms=_TICK_MS,
            session_timeout_max_ms=_SESSION_TIMEOUT_MAX_MS,
            folder=folder,
            address=home.address,
            port=self._ports[number],
        )
        config = folder / "zoo.cfg"
        config.write_text(settings + "\n".join(self._quorum) + "\n")
        with (folder / "out.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*home.prefix, *self._command, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                process_group=0,  # ^C is for the process that runs the ensemble
            )
        self._guard_processes()

    def wait_for(self, number: int) -> None:
        """Return when this server takes part in a quorum. Raises `EnsembleError`."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._serves(number):
            if self._processes[number].poll() is not None or time.monotonic() > deadline:
                log = self._folder / str(number) / "out.log"
                raise EnsembleError(f"ZooKeeper server {number} did not start: see {log}")
            time.sleep(_POLL_S)

    def pid(self, number: int) -> int:
        """Return the id of the process of a server, which runs or ended by itself."""
        return self._processes[number].pid

    def ended(self) -> dict[int, int]:
        """Return the exit status of each server that ended by itself, by number; forget them."""
        statuses = {}
        for number, process in list(self._processes.items()):
            status = process.poll()
            if status is not None:
                statuses[number] = status
                del self._processes[number]
        if statuses:
            self._guard_processes()
        return statuses

    def kill(self, number: int) -> None:
        """Kill a server, as SIGKILL does."""
        process = self._processes.pop(number)
        self._guard_processes()
        process.kill()
        process.wait()

    def pause(self, number: int) -> None:
        """Stop a process: its connections stay open, and nothing answers."""
        os.kill(self._processes[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let a paused process run again."""
        os.kill(self._processes[number].pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill all servers: every write that they acknowledged is on disk."""
        for number in list(self._processes):
            self.kill(number)
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _guard_processes(self) -> None:
        if self._guard is not None:
            self._guard.name(process.pid for process in self._processes.values())

    def _serves(self, number: int) -> bool:
        address = self._homes[number].address, self._ports[number]
        try:
            with socket.create_connection(address, _PROBE_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return False
        return b"Mode: " in answer


def _command() -> tuple[str, ...]:
    """Return the command of a server, without its file. Raises `EnsembleError`."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnsembleError(
            "ZooKeeper is run from PySpark's jars, and PySpark is not installed: "
            "pip install '.[spark]'",
            "pyspark",
        )
    try:
        java = require_java("ZooKeeper")
    except JavaMissingError as error:
        raise EnsembleError(str(error), "java") from error
    return (java, *_JVM, "-cp", f"{Path(spec.origin).parent}/jars/*", _MAIN)
