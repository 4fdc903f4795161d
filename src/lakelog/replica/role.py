"""The role of one broker in a partition: leader or follower, at one leader epoch.

Only the leader serves clients. A request that reaches another broker is answered with the current
leader (KIP-951), so that the client can go there without another Metadata request.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import LeaderIdAndEpoch


class Role(NamedTuple):
    """The part of a broker in a partition from a change of leader or ISR to the next."""

    leader_epoch: int
    leader_id: int
    """The leader's node id; -1 if the partition has none."""
    is_leader: bool
    """Whether the broker itself is the leader."""
    isr: tuple[int, ...]
    """Node ids of the in-sync replicas, with the leader's."""
    followers: tuple[int, ...] = ()
    """Node ids of the other replicas, in sync or not, if this broker is the leader."""
    preferred: int = -1
    """Node id of the first replica, if this broker is the leader."""

    @classmethod
    def in_image(cls, partition: PartitionImage, node_id: int) -> Role:
        """Return the role of broker `node_id` as the metadata image states it."""
        leads = partition.leader == node_id
        followers = [replica for replica in partition.replicas if replica != node_id]
        assert not leads or len(followers) == len(partition.replicas) - 1, "a leader is a replica"
        return cls(
            partition.leader_epoch,
            partition.leader,
            leads,
            partition.isr,
            tuple(followers) if leads else (),
            partition.replicas[0] if leads else -1,
        )


NO_ROLE = Role(leader_epoch=-1, leader_id=-1, is_leader=False, isr=())
"""The role before the first one is known."""


class NotLeaderError(KafkaError):
    """NOT_LEADER_OR_FOLLOWER, with the current leader as far as this broker knows it."""

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        leader = f"broker {leader_id}" if leader_id >= 0 else "no broker"
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{leader} leads the partition in leader epoch {leader_epoch}",
        )
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


def current_leader(error: KafkaError) -> LeaderIdAndEpoch:
    """Return the leader that the error names, or an unknown one."""
    if isinstance(error, NotLeaderError):
        return LeaderIdAndEpoch(leader_id=error.leader_id, leader_epoch=error.leader_epoch)
    return LeaderIdAndEpoch()
