"""The administrator: brokers, topics, groups, transactions, configurations, offsets, disks.

```python
with Admin("localhost:9092") as admin:
    admin.topics.create("orders", partitions=6, configs={"retention.ms": "604800000"})
    admin.groups.reset("billing", {("orders", 0): EARLIEST})
```
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakelog.base.closeable import Closeable
from lakelog.base.errors import error_code
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, check
from lakelog.client.offsets import OffsetAt, TopicPartition, known_offsets, list_offsets
from lakelog.client.view import ClusterView
from lakelog.protocol.replicas import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

if TYPE_CHECKING:
    from lakelog.client.admin.brokers import Brokers, Elections, Features
    from lakelog.client.admin.configs import Configs
    from lakelog.client.admin.groups import Groups
    from lakelog.client.admin.topics import Topics
    from lakelog.client.admin.transactions import Transactions
    from lakelog.client.cluster import Startup


@dataclass(slots=True, frozen=True)
class LogDir:
    """A broker's data folder. Sizes are in bytes; -1 if the broker does not report one."""

    node_id: int
    path: str
    partitions: Mapping[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    problem: str = ""
    """Why the broker cannot write there; empty if it can."""


def _part(module: str, kind: str) -> Any:
    """Return a cached property whose class is imported at its first use."""

    def part(admin: Admin) -> object:
        return getattr(import_module(f"lakelog.client.admin.{module}"), kind)(admin._cluster)

    return cached_property(part)


class Admin(Closeable):
    """The administrator of a cluster; for one thread at a time.

    timeout_s: limit of each operation with its retries. startup: retries the first connection, to
    brokers that may be starting. Each part is imported at its first use. Raises `AddressError`.
    """

    brokers: Brokers = _part("brokers", "Brokers")
    configs: Configs = _part("configs", "Configs")
    elections: Elections = _part("brokers", "Elections")
    features: Features = _part("brokers", "Features")
    groups: Groups = _part("groups", "Groups")
    topics: Topics = _part("topics", "Topics")
    transactions: Transactions = _part("transactions", "Transactions")

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lakelog",
        timeout_s: float = 30.0,
        startup: Startup | None = None,
    ) -> None:
        self._cluster = Cluster(
            bootstrap,
            client_id=client_id,
            timeout_s=timeout_s,
            request_timeout_s=timeout_s,
            startup=startup,
        )

    def close(self) -> None:
        self._cluster.close()

    def describe_cluster(self) -> ClusterView:
        """Return cluster id, controller, brokers and all topics.

        Raises `UnreachableError`.
        """
        return self._cluster.refresh()

    def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """Return the first offset at or after each timestamp, or -1 if there is no such record.

        A timestamp is in milliseconds since the epoch, or `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`.
        Raises `TopicNotFoundError`, `PartitionNotFoundError`.
        """
        return list_offsets(self._cluster, specs, read_committed=read_committed)

    def known_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return what `list_offsets` returns, without the partitions whose offsets are unknown now.

        It waits two seconds for them. Raises as `list_offsets` unless a repetition may succeed.
        """
        return known_offsets(self._cluster, specs)

    def log_dirs(self) -> list[LogDir]:
        """Return the data folders of every broker, with the sizes of their partitions.

        Sizes are in bytes. Raises `UnreachableError`, `ConnectionLostError`, and `ClientError` if a
        broker rejects the request (KIP-113).
        """
        brokers = list(self._cluster.refresh([]).brokers)
        return [log_dir for node in brokers for log_dir in self.log_dirs_of(node)]

    def known_log_dirs(self) -> list[LogDir]:
        """Return `log_dirs` without the folders of brokers that do not answer.

        Raises `UnreachableError` if no broker answers.
        """
        folders: list[LogDir] = []
        for node in list(self._cluster.refresh([]).brokers):
            with suppress(ClientError):
                folders += self.log_dirs_of(node)
        return folders

    def log_dirs_of(self, node: int, *, with_partitions: bool = True) -> list[LogDir]:
        """Return the data folders of one broker. Raises as `log_dirs`."""
        request = DescribeLogDirsRequest(topics=None if with_partitions else [])
        response = self._cluster.ask(node, request, DescribeLogDirsResponse)
        check(response.error_code, f"data folders of broker {node}")
        return [_log_dir(node, row) for row in response.results]


def _log_dir(node: int, row: DescribeLogDirsResult) -> LogDir:
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in row.topics
        for partition in topic.partitions
    }
    # Apache Kafka reports an error for an offline folder, and no space for a full one.
    problem = row.problem or (error_code(row.error_code).name if row.error_code else "")
    if not problem and row.usable_bytes == 0:
        problem = "no space left"
    return LogDir(node, row.log_dir, sizes, row.total_bytes, row.usable_bytes, problem)
