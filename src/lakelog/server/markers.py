"""The transaction coordinator's way to the partitions on this broker.

A partition of `__consumer_offsets` belongs to its group coordinator, which has to act upon the
marker; any other is written to directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.markers import Marker
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock


class LocalMarkers:
    """Appends are synchronous here; the interface is not, for a cluster's sake."""

    def __init__(
        self, partitions: Partitions, groups: GroupCoordinator, purgatory: Purgatory, clock: Clock
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._purgatory = purgatory
        self._clock = clock

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        return [await self._write(marker) for marker in markers]

    async def _write(self, marker: Marker) -> ErrorCode:
        try:
            partition = self._partitions.find(marker.topic, marker.partition)
            if marker.topic == GROUP_TOPIC:
                end = TransactionMarker(*marker[2:])
                code: ErrorCode = await self._groups.write_marker(marker.partition, end)
                return code
            partition.append_marker(
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
        return ErrorCode.NONE
