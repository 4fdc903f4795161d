"""Coordinators that outlive the leader epoch of their partition, or share one."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.replica.role import Role
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.coordinator_history import CoordinatorHistory
from simulator.cluster.stored_batches import BatchRun


class Loaded:
    """A coordinator whose only shard was loaded in an epoch."""

    partitions: ClassVar = [0]

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def leader_epoch(self, partition: int) -> int:
        return self._epoch


class Replicas:
    """The partitions of a broker that leads in an epoch."""

    def __init__(self, epoch: int) -> None:
        self.leader_epoch = epoch
        self.role = Role(epoch, 1, is_leader=True, isr=(1,))

    def get(self, topic: str, index: int) -> Any:
        return self if topic == GROUP_TOPIC else None


@pytest.mark.parametrize(
    ("loaded", "leads", "run", "is_sound"),
    [(4, 4, BatchRun(1, 1), True), (3, 4, BatchRun(1, 1), False), (4, 4, BatchRun(2, 1), False)],
)
def test_a_shard_belongs_to_one_leader_epoch_of_one_process(
    loaded: int, leads: int, run: BatchRun, is_sound: bool
) -> None:
    findings = Findings()
    coordinators = CoordinatorHistory(findings)
    here: Any = Replicas(4)
    coordinators.check(BatchRun(1, 1), Loaded(4), Loaded(4), here)
    now: Any = Replicas(leads)
    coordinators.check(run, Loaded(loaded), Loaded(loaded), now)
    assert findings.broken == (set() if is_sound else {Law.ONE_COORDINATOR})
