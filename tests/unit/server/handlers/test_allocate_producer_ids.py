"""AllocateProducerIds over the wire."""

from __future__ import annotations

from lakelog.protocol.allocate_producer_ids import AllocateProducerIdsRequest
from lakelog.server.handlers import allocate_producer_ids
from memory_broker import MemoryBroker


def test_a_block_is_for_one_broker() -> None:
    with MemoryBroker() as world:
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        response = world.ask(allocate_producer_ids.handle, request, 0)
        assert (response.error_code, response.producer_id_len) == (0, 1000)
        assert world.broker.image.next_producer_id == response.producer_id_start + 1000
