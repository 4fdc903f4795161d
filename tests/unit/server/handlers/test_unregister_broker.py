from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced
from lakelog.protocol.cluster import UnregisterBrokerRequest
from lakelog.server.handlers.unregister_broker import handle
from memory_broker import MemoryBroker


def ask(world: MemoryBroker, broker_id: int) -> tuple[int, str | None]:
    response = world.ask(handle, UnregisterBrokerRequest(broker_id=broker_id), 0)
    return response.error_code, response.error_message


def test_a_stopped_broker_is_unregistered(world: MemoryBroker) -> None:
    world.register(2, "h", 9093)
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    assert ask(world, 2) == (ErrorCode.NONE, None)
    assert sorted(world.broker.image.brokers) == [1]


def test_a_running_broker_stays_registered(world: MemoryBroker) -> None:
    code, message = ask(world, 1)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and "broker 1 is running" in message


def test_an_unknown_broker_has_an_error(world: MemoryBroker) -> None:
    assert ask(world, 9) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered")
