"""The coordinators of all brokers: each shard acts in the leader epoch of its partition, alone."""

from __future__ import annotations

from typing import Protocol

from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.replica.partition_registry import PartitionRegistry
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.stored_batches import BatchRun


class Coordinator(Protocol):
    """The coordinator of one topic on one broker."""

    @property
    def partitions(self) -> list[int]: ...
    def leader_epoch(self, partition: int) -> int | None: ...


class CoordinatorHistory:
    """Shards by topic, partition and leader epoch."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._owners: dict[tuple[str, int, int], BatchRun] = {}

    def check(
        self,
        run: BatchRun,
        groups: Coordinator,
        transactions: Coordinator,
        partitions: PartitionRegistry,
    ) -> None:
        """Check the loaded shards of a running broker."""
        for topic, coordinator in ((GROUP_TOPIC, groups), (TRANSACTION_TOPIC, transactions)):
            for index in coordinator.partitions:
                epoch = coordinator.leader_epoch(index)
                partition = partitions.get(topic, index)
                if epoch is None or partition is None:
                    continue
                owner = self._owners.setdefault((topic, index, epoch), run)
                name = f"{topic}-{index} on broker {run.node_id}"
                self._findings.expect(
                    Law.ONE_COORDINATOR,
                    owner == run and epoch == partition.leader_epoch and partition.role.is_leader,
                    f"{name} is coordinated in epoch {epoch}, in which broker {owner.node_id} "
                    f"coordinated; its leader epoch is {partition.leader_epoch}",
                )
