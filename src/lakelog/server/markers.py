"""The transaction coordinator's way to the partitions on this broker.

A partition of `__consumer_offsets` belongs to its group coordinator, which has to act upon the
marker; any other is written to directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.markers import Marker
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.acknowledgement import committed


class LocalMarkers:
    """A marker is answered for when it is committed."""

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """All are appended before the first is waited for."""
        return list(await asyncio.gather(*(self._write(marker) for marker in markers)))

    async def _write(self, marker: Marker) -> ErrorCode:
        try:
            partition = self._partitions.find(marker.topic, marker.partition)
            if marker.topic == GROUP_TOPIC:
                end = TransactionMarker(*marker[2:])
                code: ErrorCode = await self._groups.write_marker(marker.partition, end)
                return code
            offset = partition.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                self._clock.wall_ms(),
                transaction_version=marker.transaction_version,
            )
            self._purgatory.check(partition.key)
            await committed(partition, offset + 1, self._purgatory, self._tasks)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
