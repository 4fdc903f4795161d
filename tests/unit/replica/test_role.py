"""The role of a broker in a partition, and the error that names the leader."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import LeaderIdAndEpoch
from lakelog.replica.role import NotLeaderError, Role, current_leader

IMAGE = PartitionImage(
    partition=0, replicas=(1, 2, 3), isr=(1, 3), leader=3, leader_epoch=7, partition_epoch=9
)


@pytest.mark.parametrize(("node_id", "leads"), [(1, False), (2, False), (3, True)])
def test_one_replica_leads(node_id: int, leads: bool) -> None:
    role = Role.in_image(IMAGE, node_id)
    assert role == Role(7, 3, leads, (1, 3), (1, 2) if leads else (), 1 if leads else -1)


def test_without_a_leader_no_replica_leads() -> None:
    """The leader id is -1 then, which is no broker's id."""
    role = Role.in_image(IMAGE._replace(leader=-1), 1)
    assert (role.is_leader, role.leader_id) == (False, -1)


def test_the_error_names_the_leader_for_clients_and_for_people() -> None:
    error = NotLeaderError(3, 7)
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: broker 3 leads the partition in leader epoch 7"
    assert "no broker leads" in str(NotLeaderError(-1, 7))
    assert current_leader(error) == LeaderIdAndEpoch(leader_id=3, leader_epoch=7)


def test_other_errors_name_no_leader() -> None:
    assert current_leader(KafkaError(ErrorCode.CORRUPT_MESSAGE)) == LeaderIdAndEpoch()
