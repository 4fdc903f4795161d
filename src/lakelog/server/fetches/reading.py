"""Reads one partition for a Fetch request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lakelog.protocol.fetch import FetchRequest
from lakelog.replica.divergence import check_divergence
from lakelog.replica.fetch_session import FetchTarget
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.storage.indexes.txn_index import AbortedTransaction as Aborted
from lakelog.storage.segments.handles import LogSlice

READ_COMMITTED = 1
_REPLICA_STATE_SINCE = 15
ZSTD_SINCE = 10


class FollowerId(NamedTuple):
    """The broker that fetches as a follower, and the epoch of its registration."""

    node_id: int
    broker_epoch: int


def follower_of(request: FetchRequest, version: int) -> FollowerId | None:
    """Return the follower that sends the request; None for a consumer."""
    if version >= _REPLICA_STATE_SINCE:
        state = request.replica_state
        return FollowerId(state.replica_id, state.replica_epoch) if state.replica_id >= 0 else None
    return FollowerId(request.replica_id, -1) if request.replica_id >= 0 else None


def read_for_follower(
    broker: Broker, follower: FollowerId, target: FetchTarget, bytes_left: int, *, min_one: bool
) -> tuple[Partition, LogSlice | None]:
    """Return the target's partition and its records, committed or not.

    Raises as `read_one`, and as `Partition.replica`.
    """
    partition = broker.partitions.leader(target.topic, target.partition)
    return partition, read_copies(partition, follower, target, bytes_left, min_one=min_one)


def read_copies(
    partition: Partition,
    follower: FollowerId,
    target: FetchTarget,
    bytes_left: int,
    *,
    min_one: bool,
) -> LogSlice | None:
    """Return records as `read_for_follower`, of a partition of this broker."""
    partition.replica(*follower)
    partition.check_epoch(target.current_leader_epoch)
    if target.last_fetched_epoch >= 0:
        check_divergence(partition, target.fetch_offset, target.last_fetched_epoch)
    bytes_max, end = min(target.max_bytes, bytes_left), partition.log.log_end_offset
    return partition.read(target.fetch_offset, bytes_max, min_one=min_one, end=end)


def note_position(
    partition: Partition, follower: FollowerId, target: FetchTarget, now: float
) -> None:
    """Note the position that a follower states by its request, which may commit records.

    now: on the monotonic clock, in seconds. Raises as `Partition.note_fetch`.
    """
    offset, log_start = target.fetch_offset, target.log_start_offset
    partition.note_fetch(*follower, offset, int(now * 1000), log_start)


def read_one(
    broker: Broker, target: FetchTarget, bytes_left: int, *, committed: bool, min_one: bool
) -> tuple[Partition, LogSlice | None, Sequence[Aborted]]:
    """Return the target's partition, its records, and the aborted transactions among them.

    The records are None at the end of the readable log. They have at most `bytes_left` bytes,
    except that `min_one` allows one larger batch (KIP-74). Raises `NotLeaderError` if another
    broker leads the partition. Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
    FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (KIP-320), OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR. Raises `DivergedLog` if the reader's log has diverged, and `NotReady` for
    data that must be checked first.
    """
    partition = broker.partitions.leader(target.topic, target.partition)
    return partition, *read_of(partition, target, bytes_left, committed=committed, min_one=min_one)


def read_of(
    partition: Partition, target: FetchTarget, bytes_left: int, *, committed: bool, min_one: bool
) -> tuple[LogSlice | None, Sequence[Aborted]]:
    """Return records and aborted transactions as `read_one`, of a partition of this broker.

    Raises as `read_one`, except for unknown topics.
    """
    if target.current_leader_epoch >= 0:
        partition.check_epoch(target.current_leader_epoch)
    if target.last_fetched_epoch >= 0:
        check_divergence(partition, target.fetch_offset, target.last_fetched_epoch)
    offset, bytes_max = target.fetch_offset, min(target.max_bytes, bytes_left)
    if committed:
        return partition.read_committed(offset, bytes_max, min_one=min_one)
    return partition.read(offset, bytes_max, min_one=min_one), ()
