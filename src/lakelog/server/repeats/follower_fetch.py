"""Fetch requests of a follower that copies one partition, one offset after the other.

Each of them states the position of the follower, which may commit records.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.replica.fetch_session import PartitionKey
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.fetches.reading import FollowerId, note_position, read_copies
from lakelog.server.repeats.fetch import FetchRepeat
from lakelog.server.repeats.fetch_frames import FetchKey
from lakelog.server.requests.context import Context
from lakelog.storage.preparation import NotReady


class FollowerFetchRepeat(FetchRepeat):
    """The only partition of a follower's session; it waits for records, committed or not."""

    __slots__ = ("_follower",)

    def __init__(
        self, broker: Broker, context: Context, key: FetchKey, partition_key: PartitionKey
    ) -> None:
        super().__init__(broker, context, key, partition_key)
        self._follower = FollowerId(key.replica_id, key.replica_epoch)

    def _read(
        self,
        partition: Partition,
        size: int,
        correlation_id: int,
        epoch: int,
        offset: int | None,
    ) -> int | None:
        """As `FetchRepeat._read`."""
        session, follower, now = self._session, self._follower, self._connection.last_active
        if (
            session is None
            or session.epoch != epoch
            or list(session.targets) != [self.partition_key]
        ):
            return None
        target = self._target_at(offset, session)
        try:
            records = read_copies(partition, follower, target, self._bytes_max, min_one=True)
        except NotReady as first:
            first.job.abandon()
            return None
        except KafkaError:
            return None
        if records is None or records.size < self._bytes_min:
            if records is not None:
                records.release()
            return self._wait(size, correlation_id, partition, target, session, follower)
        session.advance(now)
        session.targets[self.partition_key] = target
        # Before the response, which has the high watermark that may rise by it.
        note_position(partition, follower, target, now)
        partition.fetched_bytes += records.size
        head = self._frames.head(correlation_id, partition, target, records.size)
        self._responses.queue_slice(records, head, self._tail)
        return 1
