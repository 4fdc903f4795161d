"""A coordinator's way to the partitions of its topic on this broker."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import TransactionMarker
from lakelog.replica.partition import Partition
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock

_READ_BYTES_MAX = 1 << 20


class LocalPartitionLog:
    """Reads and appends are synchronous here; the interface is not, for a cluster's sake."""

    def __init__(
        self, topic: str, partitions: Partitions, purgatory: Purgatory, clock: Clock
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._purgatory = purgatory
        self._clock = clock

    async def append(self, partition: int, batch: bytearray) -> int:
        replica = self._replica(partition)
        result = replica.append(batch, self._clock.wall_ms(), origin="coordinator")
        self._purgatory.check(replica.key)
        return result.base_offset

    async def append_marker(self, partition: int, marker: TransactionMarker) -> int:
        replica = self._replica(partition)
        offset = replica.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            self._clock.wall_ms(),
            transaction_version=marker.transaction_version,
        )
        self._purgatory.check(replica.key)
        return offset

    async def start_offset(self, partition: int) -> int:
        return self._replica(partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> bytes:
        found = self._replica(partition).read(offset, _READ_BYTES_MAX, min_one=True)
        if found is None:
            return b""
        try:
            return found.read()
        finally:
            found.release()

    def _replica(self, partition: int) -> Partition:
        replica = self._partitions.get(self._topic, partition)
        if replica is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica
