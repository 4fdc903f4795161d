"""The data folder and the ports of a cluster on this host, which no other process takes meanwhile.

.lock           held while a process runs the cluster
broker-N/       data of the broker with node id N
metadata.db     the metadata store that the brokers share, or
zookeeper/N/    data and log of the ZooKeeper server N
"""

from __future__ import annotations

import fcntl
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from lakelog.cli.failures import CliError

_OTHER_FOLDER = "use --data to set another folder"


class ClusterFolder:
    """The paths in the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = path / "metadata.db"
        self.zookeeper = path / "zookeeper"

    def broker(self, node_id: int) -> Path:
        """Return the data folder of a broker."""
        return self.path / f"broker-{node_id}"

    def node_ids(self) -> set[int]:
        """Return the node ids of the brokers that have a data folder."""
        names = (path.name.removeprefix("broker-") for path in self.path.glob("broker-*"))
        return {int(name) for name in names if name.isdecimal()}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder, and hold its lock within the block.

        Raises `CliError` for the folder of a single broker, and for a folder that is in use or
        cannot be used.
        """
        if (self.path / "meta.properties").exists():
            text = f"{self.path} is the data folder of a single broker, not of a cluster"
            raise CliError("LL0703", text, _OTHER_FOLDER)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"the data folder {self.path} cannot be used: {error.strerror}"
            raise CliError("LL0703", text, _OTHER_FOLDER) from error
        with (self.path / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                text = f"another process runs the cluster in {self.path}"
                raise CliError("LL0701", text, _OTHER_FOLDER) from error
            yield


_NOT_EPHEMERAL = range(20_000, 32_000)
"""No system gives these to outgoing connections: Linux begins at 32768, others at 49152."""


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and never listens; port 0 takes a free one.

    A server may bind the port too, with SO_REUSEADDR (socket(7)), and the system gives it to no
    other process meanwhile. Raises `OSError`, and `OverflowError` for a number that is no port.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
    except (OSError, OverflowError):
        reserved.close()
        raise
    return reserved


def port_of(reserved: socket.socket) -> int:
    """Return the port of a reservation."""
    port: int = reserved.getsockname()[1]
    return port


@contextmanager
def reserved_ports(host: str, first: int, count: int) -> Iterator[list[int]]:
    """Reserve ports within the block: from `first` on, or free ones for 0. Raises as `reserve`."""
    with ExitStack() as stack:
        numbers = range(first, first + count) if first else [0] * count
        yield [port_of(stack.enter_context(reserve(host, port))) for port in numbers]


def free_ports(host: str, count: int) -> list[int]:
    """Return ports that no process has and that the system gives to none by itself.

    For servers that do not bind with SO_REUSEADDR, such as ZooKeeper: a reserved port is refused to
    them. Raises `OSError` if there are not so many.
    """
    ports: list[int] = []
    untried = random.SystemRandom().sample(_NOT_EPHEMERAL, len(_NOT_EPHEMERAL))
    while len(ports) < count:
        if not untried:
            raise OSError(f"fewer than {count} ports of {_NOT_EPHEMERAL} are free")
        with suppress(OSError), closing(socket.socket()) as server:
            server.bind((host, port := untried.pop()))
            ports.append(port)
    return ports
