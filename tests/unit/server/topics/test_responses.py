"""Metadata of all topics is encoded once for each image, and is true all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.api import api_for
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.server.handlers import metadata
from lakelog.server.topics.responses import Availability, KnownMetadata
from lakelog.wire.framing import decode_response, encode_request
from memory_broker import MemoryBroker
from socketless_broker import SocketlessBroker

VERSION = 12


def _frame(message: Any, version: int, correlation_id: int) -> bytes:
    api = api_for(type(message))
    return b"".join(encode_request(api, version, correlation_id, "test", message))


async def _ask(broker: SocketlessBroker, correlation_id: int, **fields: Any) -> Any:
    message = MetadataRequest(topics=None, **fields)
    await asyncio.sleep(0)  # an iteration of the loop begins a few requests only
    data = broker.ask(_frame(message, VERSION, correlation_id))
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    answered, response = decode_response(api_for(MetadataRequest), VERSION, data[4:])
    assert answered == correlation_id
    return response


async def _create(broker: SocketlessBroker, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    broker.socket.was_sent.clear()
    broker.ask(_frame(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, 1))
    await broker.socket.was_sent.wait()
    broker.take_answer()


def test_it_is_made_once_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    described = metadata._described

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return described(*arguments)

    monkeypatch.setattr(metadata, "_described", counted)

    async def scenario() -> None:
        broker = SocketlessBroker(tmp_path)
        await broker.start()
        await _create(broker, "one")
        first = await _ask(broker, 7)
        assert await _ask(broker, 8) == first
        assert len(made) == 1
        assert [topic.name for topic in first.topics] == ["one"]
        with_operations = await _ask(broker, 9, include_topic_authorized_operations=True)
        assert with_operations.topics[0].topic_authorized_operations > 0
        assert await _ask(broker, 10) == first
        await _create(broker, "two")
        later = await _ask(broker, 11)
        assert sorted(topic.name for topic in later.topics) == ["one", "two"]
        await broker.stop()

    asyncio.run(scenario())


def test_topics_that_are_named_are_answered_at_once_unless_one_is_to_be_made(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        broker = SocketlessBroker(tmp_path, settings={"auto_create_topics_enable": "false"})
        await broker.start()
        await _create(broker, "one")
        named = [MetadataRequestTopic(name=name) for name in ("one", "none")]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=True)
        data = broker.ask(_frame(request, VERSION, 7))
        _, response = decode_response(api_for(MetadataRequest), VERSION, data[4:])
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("one", 0),
            ("none", 3),
        ]
        await broker.stop()

    asyncio.run(scenario())


def test_a_few_answers_are_kept_of_the_newest_image() -> None:
    known, old, new = KnownMetadata(), MetadataImage(), MetadataImage()
    for number in range(20):
        known.keep(old, number, b"%d" % number)
    assert sum(known.find(old, number) is not None for number in range(20)) <= 8
    assert known.find(old, 19) == b"19"
    assert known.find(new, 19) is None
    known.keep(new, 1, b"new")
    assert known.find(old, 19) is None
    assert known.find(new, 1) == b"new"


OWN, TOPIC = 1, b"t" * 16


def _partition(leader: int) -> PartitionImage:
    return PartitionImage(0, (3, 1, 2), (1,), leader, 4, 5)


def _availability(*fenced: int, offline: bytes | None = None) -> Availability:
    keys = frozenset() if offline is None else frozenset({(offline, 0)})
    return Availability(OWN, frozenset(fenced), keys)


@pytest.mark.parametrize(
    ("leader", "offline", "shown"),
    [(-1, None, -1), (1, None, 1), (1, b"o" * 16, 1), (1, TOPIC, -1), (2, TOPIC, 2)],
    ids=["no leader", "leader", "another topic offline", "own log offline", "not the own one"],
)
def test_a_partition_without_leader_is_an_error_to_ask_again(
    leader: int, offline: bytes | None, shown: int
) -> None:
    code = ErrorCode.LEADER_NOT_AVAILABLE if shown == -1 else ErrorCode.NONE
    assert _availability(offline=offline).leader(TOPIC, _partition(leader)) == (shown, code)


def test_replicas_on_fenced_brokers_are_offline_in_their_order() -> None:
    assert _availability().offline_replicas(TOPIC, _partition(1)) == []
    assert _availability(2, 3, 9).offline_replicas(TOPIC, _partition(1)) == [3, 2]


def test_an_own_replica_is_offline_if_its_log_cannot_be_used() -> None:
    availability = _availability(2, offline=TOPIC)
    assert availability.offline_replicas(TOPIC, _partition(2)) == [1, 2]
    assert availability.offline_replicas(b"o" * 16, _partition(2)) == [2]


def test_a_replica_is_offline_by_the_metadata() -> None:
    partition = _partition(1)._replace(offline=(2,))
    assert _availability(3).offline_replicas(TOPIC, partition) == [3, 2]


def test_a_broker_knows_which_of_its_logs_are_offline() -> None:
    with MemoryBroker() as world:
        key, broker = (world.create("orders", 2), 0), world.broker
        now = Availability.of(broker.node_id, broker.image, broker.partitions)
        assert now == Availability(OWN, frozenset(), frozenset())
        world.partition("orders").take_offline("a bad sector")
        now = Availability.of(broker.node_id, broker.image, broker.partitions)
        assert now == Availability(OWN, frozenset(), frozenset({key}))
