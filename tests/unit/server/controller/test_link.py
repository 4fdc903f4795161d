"""Requests to a controller that moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.topics import CreateTopicsRequest, CreateTopicsResponse
from lakelog.server.controller.link import may_be_done
from lakelog.server.inter_broker.errors import (
    PeerDisconnectedError,
    PeerError,
    PeerTimedOutError,
    PeerUnreachableError,
)
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


class LostAnswers:
    """The connection to a controller: each request is lost, until one of them is answered."""

    def __init__(self, *errors: PeerError) -> None:
        self.errors = list(errors)

    async def request(self, message: object, *, timeout_s: float, newest: int | None) -> object:
        if self.errors:
            raise self.errors.pop(0)
        return CreateTopicsResponse()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBroker]:
    """A broker for which broker 2 is the controller."""
    with MemoryBroker() as world:
        monkeypatch.setattr(world.broker.metadata, "_learn", lambda term: None)
        monkeypatch.setattr(world.broker.metadata, "_term", GONE)
        yield world


async def never() -> CreateTopicsResponse:
    raise AssertionError("the controller is another broker")


def test_a_request_that_may_arrive_later_is_not_repeated(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerTimedOutError("late"))
    link._peer = lambda node_id: cast("Any", peer)
    with pytest.raises(PeerTimedOutError) as caught:
        elsewhere.run(link.carry_out(CreateTopicsRequest(), never))
    assert may_be_done(caught.value)


def test_a_repeatable_request_is_repeated_whatever_became_of_the_first(
    elsewhere: MemoryBroker,
) -> None:
    link = elsewhere.broker.controller_link
    peer = LostAnswers(PeerTimedOutError("late"), PeerDisconnectedError("lost"))
    link._peer = lambda node_id: cast("Any", peer)
    response = elsewhere.run(link.carry_out(CreateTopicsRequest(), never, is_repeatable=True))
    assert isinstance(response, CreateTopicsResponse)
    assert not peer.errors


def test_a_request_that_was_not_sent_is_repeated(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerUnreachableError("down"))
    link._peer = lambda node_id: cast("Any", peer)
    response = elsewhere.run(link.carry_out(CreateTopicsRequest(), never))
    assert isinstance(response, CreateTopicsResponse)


def test_one_attempt_is_one_request(elsewhere: MemoryBroker) -> None:
    link, peer = elsewhere.broker.controller_link, LostAnswers(PeerUnreachableError("down"))
    link._peer = lambda node_id: cast("Any", peer)
    with pytest.raises(PeerUnreachableError) as caught:
        elsewhere.run(link.ask_once(CreateTopicsRequest(), never))
    assert not may_be_done(caught.value)


@pytest.mark.parametrize(
    ("code", "may_be"),
    [
        (ErrorCode.NOT_CONTROLLER, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
    ],
)
def test_only_a_broker_that_is_not_the_controller_has_surely_done_nothing(
    code: ErrorCode, may_be: bool
) -> None:
    assert may_be_done(KafkaError(code)) is may_be
