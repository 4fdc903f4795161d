"""BrokerRegistration over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.features import SUPPORTED
from lakelog.protocol.brokers import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    Feature,
    Listener,
    PartitionData,
    TopicData,
)
from lakelog.server.handlers.brokers import (
    allocate_producer_ids,
    alter_partition,
    broker_heartbeat,
    broker_registration,
)
from memory_broker import MemoryBroker


@pytest.mark.parametrize("version", range(5))
def test_a_broker_is_registered_with_its_listeners(version: int) -> None:
    with MemoryBroker() as world:
        world.metadata._brokers[2] = b"i" * 16
        request = BrokerRegistrationRequest(
            broker_id=2,
            cluster_id=world.broker.cluster_id,
            incarnation_id=b"i" * 16,
            listeners=[Listener(name="L", host="h", port=65535)],
            features=[
                Feature(name=n, min_supported_version=a, max_supported_version=b)
                for n, a, b in SUPPORTED
            ],
        )
        response = world.ask(broker_registration, request, version, sender=2)
        assert (response.error_code, response.broker_epoch) == (0, 1)
        (endpoint,) = world.broker.image.brokers[2].endpoints
        assert (endpoint.name, endpoint.host, endpoint.port) == ("L", "h", 65535)


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_speaks_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = BrokerRegistrationRequest(broker_id=1)
        response = world.ask(broker_registration, request, 0, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before


def test_a_broker_without_the_levels_of_the_cluster_is_rejected() -> None:
    with MemoryBroker() as world:
        world.metadata._brokers[2] = b"i" * 16
        request = BrokerRegistrationRequest(
            broker_id=2, cluster_id=world.broker.cluster_id, incarnation_id=b"i" * 16
        )
        response = world.ask(broker_registration, request, 4, sender=2)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert 2 not in world.broker.image.brokers


@pytest.mark.parametrize("version", range(3))
def test_a_broker_of_another_epoch_is_refused(version: int) -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=99)
        response = world.ask(broker_heartbeat, request, version, sender=1)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not world.broker.image.brokers[1].is_fenced


def test_another_broker_may_send_a_heartbeat_on() -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=99, via_broker=3)
        response = world.ask(broker_heartbeat, request, 0, sender=3)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_sends_heartbeats_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
        response = world.ask(broker_heartbeat, request, 0, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("is_dead", [False, True])
def test_a_lease_keeps_the_broker_from_being_fenced(version: int, is_dead: bool) -> None:
    with MemoryBroker() as world:
        lease_grants, before = world.broker.controller.lease_grants, world.broker.image
        if is_dead:
            lease_grants.divide({2: 7})
        request = BrokerHeartbeatRequest(broker_id=2, want_lease=True)
        response = world.ask(broker_heartbeat, request, version, sender=2)
        assert response.is_lease_granted is not is_dead
        due, _ = lease_grants.divide({2: 7})
        assert due == ({2: 7} if is_dead else {})
        assert world.broker.image is before


def test_another_broker_gets_no_lease_for_it() -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=2, want_lease=True)
        response = world.ask(broker_heartbeat, request, 0, sender=3)
        assert not response.is_lease_granted
        assert world.broker.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)


def test_a_deaf_broker_gets_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryBroker() as world:
        deafness = world.broker.silence.deafness
        monkeypatch.setattr(deafness, "is_denied", lambda node_id: node_id == 2)
        request = BrokerHeartbeatRequest(broker_id=2, want_lease=True)
        assert not world.ask(broker_heartbeat, request, 0, sender=2).is_lease_granted
        assert world.broker.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)


@pytest.mark.parametrize("version", [2, 3])
def test_each_partition_has_its_result(version: int) -> None:
    with MemoryBroker() as world:
        topic_id = world.create("t", 2)
        isr = [BrokerState(broker_id=1, broker_epoch=1)]
        partitions = [
            PartitionData(
                partition_index=index,
                leader_epoch=0,
                partition_epoch=0,
                new_isr=[1],
                new_isr_with_epochs=isr,
            )
            for index in (0, 2)
        ]
        request = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=1,
            topics=[TopicData(topic_id=topic_id, partitions=partitions)],
        )
        response = world.ask(alter_partition, request, version, sender=1)
        first, second = response.topics[0].partitions
        assert (first.error_code, first.leader_id, first.isr) == (0, 1, [1])
        assert first.partition_epoch == 1
        assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_alters_partitions_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = AlterPartitionRequest(broker_id=1, broker_epoch=1)
        response = world.ask(alter_partition, request, 3, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before


def test_a_block_is_for_one_broker() -> None:
    with MemoryBroker() as world:
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        response = world.ask(allocate_producer_ids, request, 0, sender=1)
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        assert world.broker.image.next_producer_id == response.producer_id_start + 1000


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_gets_producer_ids_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        response = world.ask(allocate_producer_ids, request, 0, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before
