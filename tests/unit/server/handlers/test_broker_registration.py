"""BrokerRegistration over the wire."""

from __future__ import annotations

import pytest

from lakelog.protocol.broker_registration import BrokerRegistrationRequest, Listener
from lakelog.server.handlers import broker_registration
from memory_broker import MemoryBroker


@pytest.mark.parametrize("version", range(5))
def test_a_broker_is_registered_with_its_listeners(version: int) -> None:
    with MemoryBroker() as world:
        request = BrokerRegistrationRequest(
            broker_id=2,
            cluster_id=world.broker.cluster_id,
            incarnation_id=b"i" * 16,
            listeners=[Listener(name="L", host="h", port=65535)],
        )
        response = world.ask(broker_registration.handle, request, version)
        assert (response.error_code, response.broker_epoch) == (0, 1)
        (endpoint,) = world.broker.image.brokers[2].endpoints
        assert (endpoint.name, endpoint.host, endpoint.port) == ("L", "h", 65535)
