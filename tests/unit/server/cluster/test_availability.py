from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import PartitionImage
from lakelog.server.cluster.availability import leader_error, offline_replicas


def _partition(leader: int) -> PartitionImage:
    return PartitionImage(0, (3, 1, 2), (1,), leader, 4, 5)


def test_a_partition_without_leader_is_an_error_to_ask_again() -> None:
    assert leader_error(_partition(-1)) == ErrorCode.LEADER_NOT_AVAILABLE
    assert leader_error(_partition(1)) == ErrorCode.NONE


def test_replicas_on_fenced_brokers_are_offline_in_their_order() -> None:
    assert offline_replicas(_partition(1), frozenset()) == []
    assert offline_replicas(_partition(1), frozenset({2, 3, 9})) == [3, 2]
