"""BrokerRegistration over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.features import SUPPORTED
from lakelog.protocol.brokers import BrokerRegistrationRequest, Feature, Listener
from lakelog.server.handlers import broker_registration
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
        response = world.ask(broker_registration.handle, request, version, sender=2)
        assert (response.error_code, response.broker_epoch) == (0, 1)
        (endpoint,) = world.broker.image.brokers[2].endpoints
        assert (endpoint.name, endpoint.host, endpoint.port) == ("L", "h", 65535)


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_speaks_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = BrokerRegistrationRequest(broker_id=1)
        response = world.ask(broker_registration.handle, request, 0, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before


def test_a_broker_without_the_levels_of_the_cluster_is_rejected() -> None:
    with MemoryBroker() as world:
        world.metadata._brokers[2] = b"i" * 16
        request = BrokerRegistrationRequest(
            broker_id=2, cluster_id=world.broker.cluster_id, incarnation_id=b"i" * 16
        )
        response = world.ask(broker_registration.handle, request, 4, sender=2)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert 2 not in world.broker.image.brokers
