"""Bugs that lose no record, and keep a cluster from work or its operators from knowing it."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.partition_health import OFFLINE, Ailing, examine
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import MetadataResponsePartition
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.membership import Membership
from lakelog.server.controller.succession import NO_TERM, Succession
from lakelog.server.handlers import metadata as metadata_handler
from lakelog.server.inter_broker.silence import Silence
from lakelog.server.monitoring import collect, endpoint
from lakelog.server.monitoring.readiness import ClusterStanding
from lakelog.server.monitoring.sources import Sources
from lakelog.server.topics.responses import Availability
from simulation.planted_in_clusters import bug


@bug("a dead broker that is never fenced", ("idempotent",), ("pause",), seconds=8.0)
def dead_broker_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Controller) -> tuple[dict[int, int], dict[int, int]]:
        return {}, {}

    monkeypatch.setattr(Controller, "_lost", none)


@bug("a full disk that is not reported", ("idempotent",), ("disk full",))
def full_disk_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker stays the leader."""
    monkeypatch.setattr(Membership, "note_folder", lambda self, *, is_read_only: None)


@bug("an ISR that never grows", ("idempotent",), ("kill",), seconds=6.0)
def isr_that_never_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.replica.desired_isr._has_caught_up", lambda *arguments: False)


@bug("partitions shown as healthy", ("plain",), ("two down",), first=8, seconds=8.0)
def partitions_shown_as_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers return all replicas of a partition as in sync, and some leader."""
    described = metadata_handler._partition

    def healthy(
        topic_id: bytes, partition: PartitionImage, availability: Availability
    ) -> MetadataResponsePartition:
        row = described(topic_id, partition, availability)
        row.isr_nodes = list(partition.replicas)
        row.leader_id = max(row.leader_id, partition.replicas[0])
        return row

    monkeypatch.setattr(metadata_handler, "_partition", healthy)


@bug("a health without partitions", ("plain",), ("two down",), first=8, seconds=8.0)
def health_without_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command lists partitions without a leader only."""

    def offline(*arguments: Any) -> list[Ailing]:
        return [each for each in examine(*arguments) if each.problem == OFFLINE]

    monkeypatch.setattr("lakelog.cli.commands.cluster.examine", offline)


@bug("metrics without an alarm", ("plain",), ("two down",), first=8, seconds=8.0)
def metrics_without_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have replicas and brokers, and no partition that cannot be written."""
    cluster_numbers = collect.cluster_numbers

    def silent(sources: Sources) -> dict[str, int]:
        alarms = dict.fromkeys(("leaderless_partitions", "under_min_isr_partitions"), 0)
        return cluster_numbers(sources) | alarms

    monkeypatch.setattr(collect, "cluster_numbers", silent)


@bug("a fenced broker that is ready", ("plain",), ("cut store",), seconds=8.0)
def fenced_broker_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off, and does not learn that it is fenced."""

    def standing(is_fenced: bool, is_cut_off: bool, behind: int) -> ClusterStanding:
        return ClusterStanding(is_fenced=is_fenced, behind=behind)

    monkeypatch.setattr(endpoint, "ClusterStanding", standing)


@bug("writes that need every replica", ("idempotent",), ("pause",), seconds=8.0)
def writes_that_need_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Partition, batch: Any = b"") -> None:
        if len(self.role.isr) < 1 + len(self.role.followers):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(Partition, "check_min_insync", check)
    monkeypatch.setattr(Partition, "append_coalesced", lambda self, *rest, **named: [])


@bug("a watermark over all replicas", ("idempotent",), ("pause",), seconds=8.0)
def watermark_over_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the dead ones."""
    use_role = HighWatermark.use_role

    def use_all(self: HighWatermark, role: Role, proposed: Any = ()) -> None:
        use_role(self, role, proposed)
        self._in_sync = frozenset(role.followers)
        self._compare_isr()

    monkeypatch.setattr(HighWatermark, "use_role", use_all)


@bug("a silent broker that is not fenced", ("idempotent",), ("cut brokers",))
def silent_broker_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that the metadata store hears is alive, although no other broker reaches it."""
    for conclusion in ("unseen", "cut_off"):
        monkeypatch.setattr(Silence, conclusion, lambda self: frozenset())


@bug("a mute controller that keeps its term", ("idempotent",), ("mute controller",))
def mute_controller_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Silence, "reaches_half", lambda self, live: True)
    monkeypatch.setattr(Succession, "missed_epoch", property(lambda self: NO_TERM))
