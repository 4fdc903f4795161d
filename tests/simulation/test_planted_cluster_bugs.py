"""The simulation of a cluster finds planted bugs of replication, control and coordination."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from lakelog.metadata import plan_queue
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.store.zookeeper.session import Operation
from lakelog.metadata.transactions import PlannedEntry, entries_of
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.server.coordinators.partition_log import LocalPartitionLog
from lakelog.testing.simulation.cluster.ensemble import NetworkedSession
from lakelog.testing.simulation.cluster.execution import run_cluster
from lakelog.testing.simulation.cluster.plan import ClusterPlan
from lakelog.testing.simulation.cluster.world import ClusterWorld

SEEDS = 6


def _acknowledged_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the path of repeated requests."""
    leads = property(lambda self: self._is_leader and not self.by_flush)
    monkeypatch.setattr(HighWatermark, "by_append", leads)


def _truncated_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    assume = Partition.assume

    def truncating(self: Partition, role: Role, *rest: Any) -> None:
        is_new = role.leader_epoch > self.leader_epoch
        assume(self, role, *rest)
        if is_new and not role.is_leader and self.watermark.offset < self.log.log_end_offset:
            self._cut("truncated", partial(self.log.truncate_to, self.watermark.offset))

    monkeypatch.setattr(Partition, "assume", truncating)


def _loaded_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start_offset(self: LocalPartitionLog) -> int:
        return self._replica.log.log_start_offset

    monkeypatch.setattr(LocalPartitionLog, "start_offset", start_offset)


def _results_of_a_multi_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    write = NetworkedSession.write

    async def ignoring(self: NetworkedSession, *operations: Operation) -> None:
        await write(self, *operations)

    monkeypatch.setattr(NetworkedSession, "write", ignoring)


def _records_of_a_dead_controller_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change follows the pending records, as if they were its own."""

    def keeping(image: MetadataImage, *rest: Any) -> list[PlannedEntry]:
        return entries_of(image._replace(pending=None), *rest)

    monkeypatch.setattr(plan_queue, "entries_of", keeping)


class Bug(NamedTuple):
    plant: Callable[[pytest.MonkeyPatch], None]
    workloads: tuple[str, ...]
    faults: tuple[str, ...]


BUGS = {
    "acknowledged before replication": Bug(
        _acknowledged_before_replication, ("idempotent",), ("kill", "cut brokers")
    ),
    "truncated to the high watermark": Bug(
        _truncated_to_the_high_watermark, ("idempotent",), ("kill", "controller")
    ),
    "shard loaded to the high watermark": Bug(
        _loaded_to_the_high_watermark, ("classic group", "transactions"), ("kill", "pause")
    ),
    "results of a multi ignored": Bug(
        _results_of_a_multi_ignored, ("idempotent",), ("kill", "controller")
    ),
    "records of a dead controller kept": Bug(
        _records_of_a_dead_controller_kept, ("plain", "topics"), ("controller",)
    ),
}


def caught(bug: Bug, seed: int) -> tuple[str, ...]:
    plan = ClusterPlan(8.0, frozenset(bug.workloads), frozenset(bug.faults))
    return run_cluster(ClusterWorld(seed, plan)).violations


@pytest.mark.parametrize("name", BUGS)
def test_is_caught(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[int, str] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        BUGS[name].plant(monkeypatch)
        for seed in range(1, SEEDS + 1):
            violations = caught(BUGS[name], seed)
            if violations:
                found[seed] = violations[0]
    with capsys.disabled():
        print(f"\n{name}: caught by {len(found)} of {SEEDS} seeds: {found}")
    assert found
