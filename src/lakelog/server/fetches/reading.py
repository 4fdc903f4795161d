"""Reads one partition for a Fetch request."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.replica.divergence import check_divergence
from lakelog.replica.fetch_session import FetchTarget
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.storage.indexes.txn_index import AbortedTransaction as Aborted
from lakelog.storage.segments.handles import LogSlice

READ_COMMITTED = 1
ZSTD_SINCE = 10


def read_one(
    broker: Broker, target: FetchTarget, bytes_left: int, *, committed: bool, min_one: bool
) -> tuple[Partition, LogSlice | None, Sequence[Aborted]]:
    """Return the target's partition, its records, and the aborted transactions among them.

    Raises `KafkaError`, `DivergedLog`, and `NotReady` for data that must be checked first.
    """
    partition = broker.partitions.leader(target.topic, target.partition)
    return partition, *read_of(partition, target, bytes_left, committed=committed, min_one=min_one)


def read_of(
    partition: Partition, target: FetchTarget, bytes_left: int, *, committed: bool, min_one: bool
) -> tuple[LogSlice | None, Sequence[Aborted]]:
    """As `read_one`, for a partition that is known."""
    if target.current_leader_epoch >= 0:
        partition.check_epoch(target.current_leader_epoch)
    if target.last_fetched_epoch >= 0:
        check_divergence(partition, target.fetch_offset, target.last_fetched_epoch)
    offset, bytes_max = target.fetch_offset, min(target.max_bytes, bytes_left)
    if committed:
        return partition.read_committed(offset, bytes_max, min_one=min_one)
    return partition.read(offset, bytes_max, min_one=min_one), ()
