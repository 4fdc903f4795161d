"""The options and the environment of a broker, and the errors of a start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakelog import __version__
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.store.api import MetadataStore
from lakelog.metadata.store.zookeeper.address import EnsembleAddress
from lakelog.metrics import Durations
from lakelog.runtime.api import Clock, Disk, Net, Processes, Random, Tasks


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """`listeners` are (name, host, port) as bound, with the real port if 0 was requested."""

    listeners: tuple[tuple[str, str, int], ...]
    data: Path
    node_id: int
    cluster_id: str

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener."""
        _, host, port = self.listeners[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the line in JSON."""
        return {
            "version": __version__,
            "listeners": [f"{name}://{host}:{port}" for name, host, port in self.listeners],
            "data": self.data,
            "node_id": self.node_id,
            "cluster_id": self.cluster_id,
        }

    def __str__(self) -> str:
        """Return the line that is logged."""
        return (
            f"lakelog {__version__} ready on {self.address} "
            f"(node {self.node_id}, cluster {self.cluster_id}, data in {self.data})"
        )


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`listen` is HOST:PORT; when empty, the configuration's `listeners` are used.

    `http` is HOST:PORT of the metrics and health pages; empty for none.
    `metadata` is the place of a metadata store that brokers share, a file of this host or a
    ZooKeeper ensemble; None for a store in the data folder.
    `advertise` maps a listener's name to the (host, port) in responses to clients.
    """

    data: Path
    config: BrokerConfig
    listen: str = ""
    advertise: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    node_id: int = 1
    http: str = ""
    metadata: Path | EnsembleAddress | None = None
    ready: Callable[[ReadyInfo], None] = lambda info: None

    @property
    def is_clustered(self) -> bool:
        """Whether other brokers may share the metadata store."""
        return self.metadata is not None

    @property
    def listeners(self) -> list[tuple[str, str, int]]:
        """The (name, host, port) to bind. Raises `StartError` if `listen` is malformed."""
        if not self.listen:
            return [(end.name, end.host, end.port) for end in self.config.listeners]
        return [("PLAINTEXT", *parse_address(self.listen))]


def is_every_interface(host: str) -> bool:
    """Return whether a listener on `host` accepts connections at every address of this machine."""
    return host in ("", "0.0.0.0", "::")


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of HOST:PORT; an IPv6 address is in brackets. Raises `StartError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise StartError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class StoppedError(Exception):
    """The broker has stopped by itself; the message says why. The cause is a `MetadataError`."""


class ListenError(StartError):
    """An address cannot be listened on; `for_http` if it is that of the HTTP endpoint."""

    def __init__(self, address: str, error: OSError, *, for_http: bool = False) -> None:
        what = " for http" if for_http else ""
        super().__init__(f"cannot listen on {address}{what}: {error.strerror or error}")
        self.for_http = for_http


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one broker, which a simulation replaces."""

    clock: Clock
    disk: Disk
    net: Net
    tasks: Tasks
    random: Random
    processes: Processes
    metadata: MetadataStore
    """Not yet open."""
    open_files_max: int
    """Open files of logs; connections and everything else come on top."""
    fsyncs: Durations = field(default_factory=Durations)
    """Durations of fsyncs, which the disk adds."""
    connections_max: int = sys.maxsize
    """Connections of clients for which the process has descriptors."""
