"""Gives a coordinator access to the partitions of its topic on this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import TransactionMarker
from lakelog.replica.partition import Partition
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.appends.acknowledgement import Appended, committed
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.preparation import NotReady

_READ_BYTES_MAX = 1 << 20

T = TypeVar("T")


class LocalPartitionLog:
    """The partitions of one topic. An append returns when it is committed."""

    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
        checks: StoredChecks,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks
        self._checks = checks

    async def append(self, partition: int, batch: bytearray) -> int:
        replica, result = await self._ready(
            partition,
            lambda replica: replica.append(batch, self._clock.wall_ms(), origin="coordinator"),
        )
        await self._commit(replica, result.last_offset)
        return result.base_offset

    async def append_marker(self, partition: int, marker: TransactionMarker) -> int:
        replica, offset = await self._ready(
            partition,
            lambda replica: replica.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                self._clock.wall_ms(),
                transaction_version=marker.transaction_version,
            ),
        )
        await self._commit(replica, offset)
        return offset

    async def _commit(self, replica: Partition, last_offset: int) -> None:
        self._purgatory.check(replica.key)
        await committed(
            Appended(replica, last_offset + 1, replica.leader_epoch), self._purgatory, self._tasks
        )

    async def start_offset(self, partition: int) -> int:
        return self._replica(partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> bytes:
        _, found = await self._ready(
            partition, lambda replica: replica.read(offset, _READ_BYTES_MAX, min_one=True)
        )
        if found is None:
            return b""
        try:
            return found.read()
        finally:
            found.release()

    async def _ready(self, partition: int, use: Callable[[Partition], T]) -> tuple[Partition, T]:
        """Return the partition, and the result of `use` once it no longer raises `NotReady`."""
        while True:
            replica = self._replica(partition)
            try:
                return replica, use(replica)
            except NotReady as first:
                job = first.job
            await self._checks.run_one(replica, job)

    def _replica(self, partition: int) -> Partition:
        replica = self._partitions.get(self._topic, partition)
        if replica is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica
