"""Writes the markers of the transaction coordinator to the partitions on this broker.

A marker in a partition of `__consumer_offsets` goes through its group coordinator, which applies
it. Markers in other partitions are appended directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.endings import Marker
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.appends.acknowledgement import Appended, committed
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.preparation import NotReady, Preparation


class _NotReady(NamedTuple):
    """A marker's partition, and the job that has to be done first."""

    partition: Partition
    job: Preparation


class LocalMarkers:
    """Appends markers; each result waits until its marker is committed.

    A marker is appended only if `min.insync.replicas` are in sync. Without their copies in time the
    result is REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        timeout_s: float,
        groups: GroupCoordinator,
        partitions: PartitionRegistry,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
        checks: StoredChecks,
    ) -> None:
        self._timeout_s = timeout_s
        self._partitions = partitions
        self._groups = groups
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks
        self._checks = checks

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        """Append all markers, then wait for them.

        Markers of groups, and of partitions that have to load their indexes, are appended later.
        """
        begun = [self._append(marker) for marker in markers]
        return [
            await self._outcome(marker, one) for marker, one in zip(markers, begun, strict=True)
        ]

    def begin(self, marker: Marker) -> Awaitable[ErrorCode]:
        """As `write`, but the marker is appended before this returns.

        A partition with an open transaction at the start of the broker has loaded its indexes.
        """
        try:
            begun = self._append(marker)
        except OSError:
            begun = ErrorCode.KAFKA_STORAGE_ERROR
        if begun is None:
            return self._groups.write_marker(marker.partition, TransactionMarker(*marker[2:]))
        return self._outcome(marker, begun)

    def _append(self, marker: Marker) -> Appended | ErrorCode | _NotReady | None:
        """Return None if the group coordinator appends the marker."""
        try:
            partition = self._partitions.leader(marker.topic, marker.partition)
            if marker.topic == GROUP_TOPIC:
                return None
            offset = partition.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                self._clock.wall_ms(),
                transaction_version=marker.transaction_version,
                decision=marker.decision,
            )
        except KafkaError as error:
            return error.code
        except NotReady as first:
            return _NotReady(partition, first.job)
        return Appended(partition, offset + 1, partition.leader_epoch)

    async def _outcome(
        self, marker: Marker, begun: Appended | ErrorCode | _NotReady | None
    ) -> ErrorCode:
        try:
            while isinstance(begun, _NotReady):
                await self._checks.run_one(*begun)
                begun = self._append(marker)
            if begun is None:
                end = TransactionMarker(*marker[2:])
                code: ErrorCode = await self._groups.write_marker(marker.partition, end)
                return code
            if isinstance(begun, ErrorCode):
                return begun
            deadline = self._clock.monotonic() + self._timeout_s
            await committed(begun, self._purgatory, self._tasks, deadline)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
