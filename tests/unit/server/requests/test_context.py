from __future__ import annotations

import pytest

from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from memory_broker import CLIENT_ID, MemoryBroker


def later(broker: Broker, context: Context, request: HeartbeatRequest) -> Deferred:
    return DEFERRED


def test_a_context_names_its_client(world: MemoryBroker) -> None:
    context = world.start(later, HeartbeatRequest(), 4).context
    assert context.client_id == CLIENT_ID
    assert context.version == 4


def test_a_kept_frame_is_sent_with_the_number_of_each_request(world: MemoryBroker) -> None:
    first = world.start(later, HeartbeatRequest(), 4)
    frame = first.context.encode(HeartbeatResponse(error_code=27))
    for asked in (first, world.start(later, HeartbeatRequest(), 4)):
        asked.context.reply_encoded(frame)
        assert asked.response().error_code == 27


def test_responses_leave_in_the_order_of_the_requests(world: MemoryBroker) -> None:
    first = world.start(later, HeartbeatRequest(), 4)
    connection = first.context.connection
    second = Context(connection, first.context.api, 4, 8, CLIENT_ID)
    connection.expect(second)
    second.reply(HeartbeatResponse(error_code=2))
    assert connection.pending
    first.context.reply(HeartbeatResponse(error_code=1))
    assert not connection.pending


def test_none_stands_for_no_response(world: MemoryBroker) -> None:
    asked = world.start(later, HeartbeatRequest(), 4)
    asked.context.reply(None)
    assert asked.context.parts == []
    assert not asked.context.connection.pending


def test_a_response_that_cannot_be_encoded_is_a_bug(world: MemoryBroker) -> None:
    asked = world.start(later, HeartbeatRequest(), 4)
    with pytest.raises(AssertionError, match="Heartbeat"):
        asked.context.reply(HeartbeatResponse(error_code=1 << 40))
