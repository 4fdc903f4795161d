"""The transaction coordinator's way to the partitions on this broker.

A partition of `__consumer_offsets` belongs to its group coordinator, which has to act upon the
marker; any other is written to directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.markers import Marker
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.acknowledgement import Appended, committed


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
        """All are appended before the first is waited for, but for those of groups."""
        begun = [self._append(marker) for marker in markers]
        return [
            await self._outcome(marker, one) for marker, one in zip(markers, begun, strict=True)
        ]

    def begin(self, marker: Marker) -> Awaitable[ErrorCode]:
        """As `write`, but the marker is on its way when this returns, before any other."""
        try:
            begun = self._append(marker)
        except OSError:
            begun = ErrorCode.KAFKA_STORAGE_ERROR
        if begun is None:
            return self._groups.write_marker(marker.partition, TransactionMarker(*marker[2:]))
        return self._outcome(marker, begun)

    def _append(self, marker: Marker) -> Appended | ErrorCode | None:
        """`None` leaves it to the group coordinator."""
        try:
            partition = self._partitions.find(marker.topic, marker.partition)
            if marker.topic == GROUP_TOPIC:
                return None
            offset = partition.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                self._clock.wall_ms(),
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            return error.code
        self._purgatory.check(partition.key)
        return Appended(partition, offset + 1)

    async def _outcome(self, marker: Marker, begun: Appended | ErrorCode | None) -> ErrorCode:
        try:
            if begun is None:
                end = TransactionMarker(*marker[2:])
                code: ErrorCode = await self._groups.write_marker(marker.partition, end)
                return code
            if isinstance(begun, ErrorCode):
                return begun
            await committed(begun, self._purgatory, self._tasks)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
