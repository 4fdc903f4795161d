from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import PartitionImage
from lakelog.server.topics.availability import Availability
from memory_broker import MemoryBroker

OWN, TOPIC = 1, b"t" * 16


def _partition(leader: int) -> PartitionImage:
    return PartitionImage(0, (3, 1, 2), (1,), leader, 4, 5)


def _availability(*fenced: int, offline: bytes | None = None) -> Availability:
    keys = frozenset() if offline is None else frozenset({(offline, 0)})
    return Availability(OWN, frozenset(fenced), keys)


@pytest.mark.parametrize(
    ("leader", "offline", "shown"),
    [(-1, None, -1), (1, None, 1), (1, b"o" * 16, 1), (1, TOPIC, -1), (2, TOPIC, 2)],
    ids=["no leader", "leader", "another topic offline", "own log offline", "not the own one"],
)
def test_a_partition_without_leader_is_an_error_to_ask_again(
    leader: int, offline: bytes | None, shown: int
) -> None:
    code = ErrorCode.LEADER_NOT_AVAILABLE if shown == -1 else ErrorCode.NONE
    assert _availability(offline=offline).leader(TOPIC, _partition(leader)) == (shown, code)


def test_replicas_on_fenced_brokers_are_offline_in_their_order() -> None:
    assert _availability().offline_replicas(TOPIC, _partition(1)) == []
    assert _availability(2, 3, 9).offline_replicas(TOPIC, _partition(1)) == [3, 2]


def test_an_own_replica_is_offline_if_its_log_cannot_be_used() -> None:
    availability = _availability(2, offline=TOPIC)
    assert availability.offline_replicas(TOPIC, _partition(2)) == [1, 2]
    assert availability.offline_replicas(b"o" * 16, _partition(2)) == [2]


def test_a_replica_is_offline_by_the_metadata() -> None:
    partition = _partition(1)._replace(offline=(2,))
    assert _availability(3).offline_replicas(TOPIC, partition) == [3, 2]


def test_a_broker_knows_which_of_its_logs_are_offline() -> None:
    with MemoryBroker() as world:
        key, broker = (world.create("orders", 2), 0), world.broker
        now = Availability.of(broker.node_id, broker.image, broker.partitions)
        assert now == Availability(OWN, frozenset(), frozenset())
        world.partition("orders").take_offline("a bad sector")
        now = Availability.of(broker.node_id, broker.image, broker.partitions)
        assert now == Availability(OWN, frozenset(), frozenset({key}))
