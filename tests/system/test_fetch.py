"""Fetch, frame by frame: sizes, waits, epochs and sessions (KIP-74, KIP-227, KIP-320)."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from lakelog.protocol.topics import DeleteTopicsRequest
from lakelog.records.batch import iter_batches
from wire_client import (
    FETCH_VERSION,
    FOREVER_MS,
    WireClient,
    batch_of,
    create_topic,
    described,
    fetch,
    fetch_request,
    produce,
    produce_request,
)

FETCH = api_for(FetchRequest)


def _offsets(partition: Any) -> list[tuple[int, int]]:
    """First and last offset of each batch."""
    return [(h.base_offset, h.last_offset) for h, _ in iter_batches(partition.records or b"")]


def test_a_fetch_within_a_batch_returns_it_whole(wire: WireClient, topic: str) -> None:
    """Asked for at every offset of batches of several records (a bug of Nisshi)."""
    for size in (3, 1, 4):
        assert produce(wire, topic, batch_of(*[b"value"] * size)).error_code == 0
    batches = [(0, 2), (3, 3), (4, 7)]
    for offset in range(8):
        answer = fetch(wire, topic, offset)
        assert answer.error_code == 0
        assert answer.high_watermark == answer.last_stable_offset == 8
        assert _offsets(answer) == [batch for batch in batches if batch[1] >= offset]


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}])
def test_the_first_batch_comes_though_over_the_limit(
    wire: WireClient, topic: str, limits: dict[str, int]
) -> None:
    for _ in range(2):
        produce(wire, topic, batch_of(b"x" * 5000))
    assert _offsets(fetch(wire, topic, 0, **limits)) == [(0, 0)]


def test_only_one_partition_goes_over_the_limit(wire: WireClient, unused: str) -> None:
    create_topic(wire, unused, 2)
    for index in range(2):
        produce(wire, unused, batch_of(b"x" * 5000), partition=index)
    request = fetch_request(unused, 0, max_bytes=100)
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))

    partitions = wire.call(request, FETCH_VERSION).responses[0].partitions

    assert {entry.partition_index: _offsets(entry) for entry in partitions} == {0: [(0, 0)], 1: []}


def test_the_end_is_empty_and_beyond_it_is_an_error(wire: WireClient, topic: str) -> None:
    produce(wire, topic, batch_of(b"a", b"b"))
    at_end = fetch(wire, topic, 2)
    assert (at_end.error_code, _offsets(at_end)) == (ErrorCode.NONE, [])
    assert fetch(wire, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, -5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_empty_fetch_waits_no_longer_than_asked(wire: WireClient, topic: str) -> None:
    start = time.monotonic()
    answer = fetch(wire, topic, 0, max_wait_ms=400)
    assert time.monotonic() - start > 0.39
    assert _offsets(answer) == []


def test_a_waiting_fetch_is_answered_when_enough_has_arrived(
    wire: WireClient, topic: str, bootstrap: str
) -> None:
    batch = batch_of(b"x" * 100)
    with WireClient(bootstrap) as reader:
        request = fetch_request(topic, 0, max_wait_ms=FOREVER_MS, min_bytes=len(batch) + 1)
        reader.send(request, FETCH_VERSION)
        produce(wire, topic, batch)
        assert reader.is_silent(0.3), "one batch is less than min_bytes"
        produce(wire, topic, batch)
        _, response = reader.receive(FETCH, FETCH_VERSION)
    assert _offsets(response.responses[0].partitions[0]) == [(0, 0), (1, 1)]


def test_an_error_is_answered_without_waiting(wire: WireClient, topic: str, unused: str) -> None:
    answer = fetch(wire, topic, 7, max_wait_ms=FOREVER_MS)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_requests_behind_a_waiting_fetch_are_answered_after_it(
    wire: WireClient, topic: str, bootstrap: str
) -> None:
    with WireClient(bootstrap) as other:
        first = other.send(fetch_request(topic, 0, max_wait_ms=FOREVER_MS), FETCH_VERSION)
        second = other.send(fetch_request(topic, 0), FETCH_VERSION)
        assert other.is_silent(0.2)
        produce(wire, topic, batch_of(b"x"))
        assert [other.receive(FETCH, FETCH_VERSION)[0] for _ in range(2)] == [first, second]


def test_unknown_topics(wire: WireClient, topic: str) -> None:
    assert fetch(wire, "no-such-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = fetch(wire, topic, 0, partition=9)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name(wire: WireClient, topic: str, version: int) -> None:
    produce(wire, topic, batch_of(b"x"))
    response = wire.call(fetch_request(topic, 0), version)
    assert _offsets(response.responses[0].partitions[0]) == [(0, 0)]


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id(wire: WireClient, topic: str, version: int) -> None:
    produce(wire, topic, batch_of(b"x"))
    request = fetch_request("", 0)
    request.topics[0].topic_id = described(wire, topic).topic_id
    response = wire.call(request, version)
    assert _offsets(response.responses[0].partitions[0]) == [(0, 0)]

    request.topics[0].topic_id = uuid.uuid4().bytes
    unknown = wire.call(request, version).responses[0].partitions[0]
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_from_the_future_is_unknown(wire: WireClient, topic: str) -> None:
    """KIP-320: 75; an older one is 74 (`test_kill.test_nothing_begins_again`)."""
    epoch = described(wire, topic).partitions[0].leader_epoch
    assert fetch(wire, topic, 0, leader_epoch=epoch).error_code == 0
    newer = fetch(wire, topic, 0, leader_epoch=epoch + 1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


class Session:
    """A fetch session over two partitions of a topic."""

    def __init__(self, wire: WireClient, topic: str) -> None:
        self._wire, self.topic = wire, topic
        response = self.fetch((0, 0), {0: 0, 1: 0})
        assert response.error_code == 0
        assert response.session_id > 0
        assert self.partitions(response) == {0: [], 1: []}
        self.id = response.session_id

    def fetch(
        self, session: tuple[int, int], offsets: dict[int, int], forgotten: tuple[int, ...] = ()
    ) -> Any:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchTopic(
                    topic=self.topic,
                    partitions=[
                        FetchPartition(
                            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ]
            if offsets
            else [],
            forgotten_topics_data=[ForgottenTopic(topic=self.topic, partitions=list(forgotten))]
            if forgotten
            else [],
        )
        return self._wire.call(request, FETCH_VERSION)

    @staticmethod
    def partitions(response: Any) -> dict[int, list[tuple[int, int]]]:
        return {
            entry.partition_index: _offsets(entry)
            for part in response.responses
            for entry in part.partitions
        }


@pytest.fixture
def session(wire: WireClient, unused: str) -> Session:
    create_topic(wire, unused, 2)
    return Session(wire, unused)


def test_a_session_answers_with_what_changed(wire: WireClient, session: Session) -> None:
    response = session.fetch((session.id, 1), {})
    assert (response.session_id, session.partitions(response)) == (session.id, {})
    produce(wire, session.topic, batch_of(b"x"), partition=1)
    assert session.partitions(session.fetch((session.id, 2), {})) == {1: [(0, 0)]}
    assert session.partitions(session.fetch((session.id, 3), {1: 1})) == {}
    produce(wire, session.topic, batch_of(b"x"), partition=0)
    produce(wire, session.topic, batch_of(b"x"), partition=1)
    assert session.partitions(session.fetch((session.id, 4), {}, forgotten=(0,))) == {1: [(1, 1)]}


def test_a_session_epoch_is_used_once(session: Session) -> None:
    assert session.fetch((session.id, 1), {}).error_code == 0
    for wrong in (1, 3):
        response = session.fetch((session.id, wrong), {})
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.fetch((session.id, 2), {}).error_code == 0


def test_an_unknown_or_closed_session(session: Session) -> None:
    unknown = session.fetch((session.id ^ 1, 1), {})
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closed = session.fetch((session.id, -1), {0: 0})
    assert (closed.error_code, closed.session_id) == (0, 0)
    again = session.fetch((session.id, 1), {})
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_without_a_session_gets_none(wire: WireClient, topic: str) -> None:
    response = wire.call(fetch_request(topic, 0), FETCH_VERSION)
    assert (response.error_code, response.session_id) == (0, 0)


def test_produced_while_a_session_waits(wire: WireClient, session: Session, bootstrap: str) -> None:
    with WireClient(bootstrap) as other:
        request = FetchRequest(
            max_wait_ms=FOREVER_MS, min_bytes=1, session_id=session.id, session_epoch=1
        )
        other.send(request, FETCH_VERSION)
        assert other.is_silent(0.2)
        wire.call(produce_request(session.topic, batch_of(b"x"), partition=1), 9)
        _, response = other.receive(FETCH, FETCH_VERSION)
    assert session.partitions(response) == {1: [(0, 0)]}


def test_a_repeated_fetch_by_name_reads_the_recreated_topic(
    wire: WireClient, bootstrap: str, topic: str
) -> None:
    """KAFKA-12257: the connection has learned the request before the topic is recreated."""
    delete = DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000)
    with WireClient(bootstrap) as other:
        for number in range(3):
            value = b"%d" % number * 40_000
            for _ in range(3):
                assert produce(other, topic, batch_of(value)).error_code == 0
            for offset in (0, 1, 2):
                answer = fetch(wire, topic, offset, partition_max_bytes=40_000)
                assert _offsets(answer) == [(offset, offset)]
                assert value in bytes(answer.records)
            assert other.call(delete, 5).responses[0].error_code == 0
            gone = fetch(wire, topic, 2, partition_max_bytes=40_000)
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            create_topic(other, topic)
