"""Fetch sessions of a simulated consumer: requests, omitted partitions and forgotten ones."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from scripted_clients import ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.consumers.session_consumer import SessionConsumer

PLACES = [("topic", 0), ("topic", 1)]


def response(*indexes: int, session: int = 7, code: int = 0) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=9, last_stable_offset=9, records=b"")
        for index in indexes
    ]
    return FetchResponse(
        error_code=code,
        session_id=session,
        responses=[FetchableTopicResponse(topic="topic", partitions=partitions)],
    )


def fetch(
    world: ScriptedWorld, reader: SessionConsumer, answer: FetchResponse | None
) -> FetchRequest:
    broker = world.answer(reader, (FetchRequest, answer))
    world.play(reader._fetch_all())
    (request,) = broker.sent(FetchRequest)
    return request


def indexes(request: FetchRequest) -> list[int]:
    return [entry.partition for topic in request.topics for entry in topic.partitions]


def test_a_session_sends_only_changed_and_forgotten_partitions() -> None:
    with scripted_world() as world:
        reader = SessionConsumer(world.context, "reader", PLACES)
        full = fetch(world, reader, response(0, 1))
        assert (full.session_id, full.session_epoch, indexes(full)) == (0, 0, [0, 1])
        reader._positions[PLACES[1]] = 4
        changed = fetch(world, reader, response(1))
        assert (changed.session_id, changed.session_epoch, indexes(changed)) == (7, 1, [1])
        reader._wanted.discard(PLACES[0])
        forgetting = fetch(world, reader, response())
        assert (forgetting.session_epoch, indexes(forgetting)) == (2, [])
        (gone,) = forgetting.forgotten_topics_data
        assert (gone.topic, gone.partitions) == ("topic", [0])
        assert not world.findings.violations
        assert world.findings.counts["fetches in sessions"] == 2


def test_a_response_may_omit_only_unchanged_partitions() -> None:
    with scripted_world() as world:
        reader = SessionConsumer(world.context, "reader", PLACES)
        fetch(world, reader, response())
        assert not world.findings.violations
        world.records.partition(PLACES[1]).end = 1
        fetch(world, reader, response(0))
        assert world.findings.broken == {Law.SESSION_COMPLETE}


def test_a_response_with_a_forgotten_partition() -> None:
    with scripted_world() as world:
        reader = SessionConsumer(world.context, "reader", PLACES)
        reader._wanted.discard(PLACES[0])
        fetch(world, reader, response(0))
        assert world.findings.broken == {Law.SESSION_FORGETS}


@pytest.mark.parametrize("restarted", [False, True])
def test_only_a_restart_excuses_a_lost_session(restarted: bool) -> None:
    with scripted_world() as world:
        reader = SessionConsumer(world.context, "reader", PLACES)
        fetch(world, reader, response())
        world.brokers.hosts[0].starts += restarted
        fetch(world, reader, response(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        assert world.findings.broken == (set() if restarted else {Law.ANSWERS})
        again = fetch(world, reader, response())
        assert (again.session_id, again.session_epoch, indexes(again)) == (0, 0, [0, 1])


def test_a_lost_response_ends_the_session() -> None:
    with scripted_world() as world:
        reader = SessionConsumer(world.context, "reader", PLACES)
        fetch(world, reader, response())
        fetch(world, reader, None)
        assert fetch(world, reader, response()).session_epoch == 0
        assert not world.findings.violations
