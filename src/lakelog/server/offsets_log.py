"""A coordinator's way to the partitions of its topic on this broker."""

from __future__ import annotations

import asyncio

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import TransactionMarker
from lakelog.replica.partition import Partition
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.acknowledgement import Appended, committed
from lakelog.server.checks import finish_check
from lakelog.storage.preparation import NotReady

_READ_BYTES_MAX = 1 << 20


class LocalPartitionLog:
    """An append returns when it is committed."""

    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks

    async def append(self, partition: int, batch: bytearray) -> int:
        replica = self._replica(partition)
        result = replica.append(batch, self._clock.wall_ms(), origin="coordinator")
        await self._commit(replica, result.last_offset)
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
        await self._commit(replica, offset)
        return offset

    async def _commit(self, replica: Partition, last_offset: int) -> None:
        self._purgatory.check(replica.key)
        await committed(Appended(replica, last_offset + 1), self._purgatory, self._tasks)

    async def start_offset(self, partition: int) -> int:
        return self._replica(partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> bytes:
        replica = self._replica(partition)
        while True:
            try:
                found = replica.read(offset, _READ_BYTES_MAX, min_one=True)
                break
            except NotReady as first:
                work = self._tasks.offload("check", first.job.run)
                await asyncio.wait([work])
                finish_check(replica, first.job, work.exception())
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
