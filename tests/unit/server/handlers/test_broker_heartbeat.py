"""BrokerHeartbeat over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.broker_heartbeat import BrokerHeartbeatRequest
from lakelog.server.handlers import broker_heartbeat
from memory_broker import MemoryBroker


@pytest.mark.parametrize("version", range(3))
def test_a_broker_of_another_epoch_is_refused(version: int) -> None:
    with MemoryBroker() as world:
        request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=99)
        response = world.ask(broker_heartbeat.handle, request, version)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not world.broker.image.brokers[1].is_fenced
