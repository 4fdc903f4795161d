"""Bugs that lose no record, and keep a cluster from work or its operators from knowing it."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import MetadataResponsePartition
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.membership import Membership
from lakelog.server.handlers import metadata as metadata_handler
from simulation.planted_in_clusters import bug


@bug("a dead broker that is never fenced", ("idempotent",), ("pause",), seconds=8.0)
def dead_broker_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Controller) -> tuple[dict[int, int], dict[int, int]]:
        return {}, {}

    monkeypatch.setattr(Controller, "_lost", none)


@bug("a full disk that is not reported", ("idempotent",), ("disk full",), first=4)
def full_disk_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker stays the leader."""
    monkeypatch.setattr(Membership, "note_folder", lambda self, *, is_read_only: None)


@bug("an ISR that never grows", ("idempotent",), ("kill",), seconds=6.0)
def isr_that_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.replica.in_sync._has_caught_up", lambda *arguments: False)


@bug("partitions shown as healthy", ("plain",), ("two down",), first=8, seconds=8.0)
def partitions_shown_as_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers return all replicas of a partition as in sync, and some leader."""
    described = metadata_handler._partition

    def healthy(partition: PartitionImage, fenced: frozenset[int]) -> MetadataResponsePartition:
        row = described(partition, fenced)
        row.isr_nodes = list(partition.replicas)
        row.leader_id = max(row.leader_id, partition.replicas[0])
        return row

    monkeypatch.setattr(metadata_handler, "_partition", healthy)


@bug("writes that need every replica", ("idempotent",), ("pause",), seconds=8.0)
def writes_that_need_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Partition, batch: Any = b"") -> None:
        if len(self.role.isr) < 1 + len(self.role.followers):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(Partition, "check_min_insync", check)
    monkeypatch.setattr(Partition, "append_run", lambda self, *rest, **named: [])


@bug("a watermark over all replicas", ("idempotent",), ("pause",), seconds=8.0)
def watermark_over_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the dead ones."""
    use_role = HighWatermark.use_role

    def use_all(self: HighWatermark, role: Role, proposed: Any = ()) -> None:
        use_role(self, role, proposed)
        self._in_sync = frozenset(role.followers)
        self._compare_isr()

    monkeypatch.setattr(HighWatermark, "use_role", use_all)
