"""Metadata of all topics is encoded once for each image, and is true all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import FeatureRecord
from lakelog.protocol.api import api_for
from lakelog.protocol.commit_sets import FEATURE
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.server.handlers import metadata
from lakelog.server.topics.responses import KnownMetadata, finalized_features, supported_features
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import SocketlessBroker


def test_clients_before_version_4_are_not_sent_features_whose_lowest_level_is_0() -> None:
    assert "transaction.version" not in {each.name for each in supported_features(3)}
    assert "transaction.version" in {each.name for each in supported_features(4)}


def test_commit_sets_are_listed_for_clients_of_any_version() -> None:
    """Clients look for the supported level before they send a commit set (ADR 8)."""
    for version in (3, 4):
        rows = {each.name: each for each in supported_features(version)}
        assert (rows[FEATURE].min_version, rows[FEATURE].max_version) == (1, 1)


def test_finalized_levels_come_from_the_image() -> None:
    image = MetadataImage().apply(FeatureRecord("transaction.version", 1))
    levels = {each.name: each.max_version_level for each in finalized_features(image)}
    assert levels == {"group.version": 1, "lakelog.metadata.version": 1, "transaction.version": 1}
    image = image.apply(FeatureRecord("transaction.version", 0))
    assert "transaction.version" not in {each.name for each in finalized_features(image)}


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
