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

    @contextmanager
    def held(self, *, zookeeper: bool) -> Iterator[None]:
        """Create the folder, and hold its lock within the block.

        zookeeper: whether the metadata will be in ZooKeeper. Raises `CliError` for a folder of
        another kind, and for one in use. Raises `OSError` if the folder cannot be used.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._check(zookeeper=zookeeper)
        with (self.path / ".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                text = f"another process runs the cluster in {self.path}"
                raise CliError("LL0701", text, _OTHER) from error
            yield

    def _check(self, *, zookeeper: bool) -> None:
        if (self.path / "meta.properties").exists():
            text = f"{self.path} is the data folder of a single broker, not of a cluster"
            raise CliError("LL0703", text, _OTHER)
        if zookeeper and self.metadata.exists():
            text = f"the metadata of the cluster in {self.path} is in metadata.db, not in ZooKeeper"
            raise CliError("LL0703", text, f"leave --zookeeper out, or {_OTHER}")
        if not zookeeper and self.zookeeper.exists():
            text = f"the metadata of the cluster in {self.path} is in ZooKeeper"
            raise CliError("LL0703", text, f"pass --zookeeper, or {_OTHER}")
