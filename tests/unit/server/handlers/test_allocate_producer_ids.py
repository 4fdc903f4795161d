"""AllocateProducerIds over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import AllocateProducerIdsRequest
from lakelog.server.handlers import allocate_producer_ids
from memory_broker import MemoryBroker


def test_a_block_is_for_one_broker() -> None:
    with MemoryBroker() as world:
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        response = world.ask(allocate_producer_ids.handle, request, 0, sender=1)
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        assert world.broker.image.next_producer_id == response.producer_id_start + 1000


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_speaks_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        response = world.ask(allocate_producer_ids.handle, request, 0, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before
