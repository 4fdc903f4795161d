"""BrokerHeartbeat over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import BrokerHeartbeatRequest
from lakelog.server.handlers import broker_heartbeat
from memory_broker import MemoryBroker


@pytest.mark.parametrize("version", range(3))
def test_a_broker_of_another_epoch_is_refused(version: int) -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=99)
        response = world.ask(broker_heartbeat.handle, request, version, sender=1)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not world.broker.image.brokers[1].is_fenced


def test_another_broker_may_send_a_heartbeat_on() -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=99, via_broker=3)
        response = world.ask(broker_heartbeat.handle, request, 0, sender=3)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_speaks_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
        response = world.ask(broker_heartbeat.handle, request, 0, sender=sender)
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
        response = world.ask(broker_heartbeat.handle, request, version, sender=2)
        assert response.is_lease_granted is not is_dead
        due, _ = lease_grants.divide({2: 7})
        assert due == ({2: 7} if is_dead else {})
        assert world.broker.image is before


def test_another_broker_gets_no_lease_for_it() -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=2, want_lease=True)
        response = world.ask(broker_heartbeat.handle, request, 0, sender=3)
        assert not response.is_lease_granted
        assert world.broker.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)


def test_a_deaf_broker_gets_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryBroker() as world:
        deafness = world.broker.silence.deafness
        monkeypatch.setattr(deafness, "is_denied", lambda node_id: node_id == 2)
        request = BrokerHeartbeatRequest(broker_id=2, want_lease=True)
        assert not world.ask(broker_heartbeat.handle, request, 0, sender=2).is_lease_granted
        assert world.broker.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)
