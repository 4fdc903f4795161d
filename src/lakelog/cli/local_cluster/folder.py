"""The data folder of a cluster on this host.

.lock           held while a process runs the cluster
broker-N/       data of the broker with node id N
metadata.db     the metadata store that the brokers share, or
zookeeper/N/    data and log of the ZooKeeper server N
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelog.cli.failures import CliError

_OTHER = "use --data to set another folder"


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
            raise CliError("LL0703", text, _OTHER)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"the data folder {self.path} cannot be used: {error.strerror}"
            raise CliError("LL0703", text, _OTHER) from error
        with (self.path / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                text = f"another process runs the cluster in {self.path}"
                raise CliError("LL0701", text, _OTHER) from error
            yield
