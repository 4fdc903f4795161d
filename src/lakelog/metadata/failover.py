"""The leader and the in-sync replicas of one partition after a broker is fenced or unfenced.

A fenced broker leads nothing. It leaves the ISR as long as another replica is in it: it may have
lost acknowledged records, and the others need not wait for it. The last in-sync replica stays in
the ISR, and the partition has no leader until that broker is back: only it has every committed
record. With `unclean.leader.election.enable` another replica leads instead, and records are lost.

These functions are part of the format of the metadata log: they define the effect of its records.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

NO_LEADER = -1


class PartitionImage(NamedTuple):
    """Replicas, ISR, leader and epochs of one partition; `leader` is -1 if there is none."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int

    def led_by(self, leader: int, isr: tuple[int, ...]) -> PartitionImage:
        """Return the partition with this leader, in a new leader epoch."""
        assert leader == NO_LEADER or leader in isr, "the leader is in the ISR"
        return self._replace(
            isr=isr,
            leader=leader,
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )


def without_broker(
    partition: PartitionImage, broker_id: int, fenced: Container[int]
) -> PartitionImage:
    """Return the partition after the fencing of one broker; the same object if nothing changes.

    fenced: the fenced brokers, with this one or without it.
    """
    if broker_id not in partition.isr:
        return partition
    others = tuple(node_id for node_id in partition.isr if node_id != broker_id)
    # The last member keeps its place even though it is fenced. Without it the image would not show
    # which replica has every committed record, and an election would lose some (KIP-966).
    if not others:
        is_leader = partition.leader == broker_id
        return partition.led_by(NO_LEADER, partition.isr) if is_leader else partition
    if partition.leader == broker_id:
        return partition.led_by(_first(partition, others, fenced), others)
    # No new leader epoch: the leader is the same, and its producers and fetches continue. The
    # partition epoch rises, so that an AlterPartition decided on the old ISR is rejected.
    return partition._replace(isr=others, partition_epoch=partition.partition_epoch + 1)


def with_broker(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """Return the partition after a broker was unfenced; the same object if nothing changes."""
    if partition.leader == NO_LEADER and broker_id in partition.isr:
        return partition.led_by(broker_id, partition.isr)
    return partition


def elected_uncleanly(partition: PartitionImage, fenced: Container[int]) -> PartitionImage:
    """Return a partition without a leader led by any replica, which may lack committed records.

    The same object if no replica can lead.
    """
    assert partition.leader == NO_LEADER
    leader = _first(partition, partition.replicas, fenced)
    return partition if leader == NO_LEADER else partition.led_by(leader, (leader,))


def _first(partition: PartitionImage, candidates: tuple[int, ...], fenced: Container[int]) -> int:
    """Return the first replica in the order of preference that can lead, or -1."""
    able = (each for each in partition.replicas if each in candidates and each not in fenced)
    return next(able, NO_LEADER)
