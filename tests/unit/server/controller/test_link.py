"""Requests to a controller that moves."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.create_topics import CreateTopicsRequest, CreateTopicsResponse
from memory_broker import MemoryBroker

GONE = ControllerTerm(2, 50)


def test_the_successor_of_a_dead_controller_carries_the_request_out() -> None:
    with MemoryBroker() as world:
        link = world.broker.controller_link
        was_here = link.is_here
        world.metadata._term = GONE
        world.broker.metadata._learn(GONE)
        is_here = link.is_here

        async def here() -> CreateTopicsResponse:
            return CreateTopicsResponse()

        response = world.run(link.carry_out(CreateTopicsRequest(), here))
        assert isinstance(response, CreateTopicsResponse)
        assert [was_here, is_here, link.is_here] == [True, False, True], "no other broker lives"


def test_an_error_of_the_controller_is_final() -> None:
    calls = []

    async def here() -> CreateTopicsResponse:
        calls.append(1)
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    with MemoryBroker() as world, pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        world.run(world.broker.controller_link.carry_out(CreateTopicsRequest(), here))
    assert calls == [1]


def test_a_broker_that_is_not_the_controller_is_asked_again_for_some_time() -> None:
    async def here() -> CreateTopicsResponse:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    with MemoryBroker() as world:
        begun = world.clock.monotonic()
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            world.run(
                world.broker.controller_link.carry_out(CreateTopicsRequest(), here, patience_s=5)
            )
        assert 5 <= world.clock.monotonic() - begun < 6
