from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from lakelog.server.handlers.delete_topics import handle
from memory_broker import MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode
UNKNOWN_ID = b"\x11" * 16


def by_name(world: MemoryBroker, *names: str, version: int = 5) -> list[DeletableTopicResult]:
    return world.ask(handle, DeleteTopicsRequest(topic_names=list(names)), version).responses


def ask(world: MemoryBroker, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    return world.ask(handle, DeleteTopicsRequest(topics=list(topics)), 6).responses


def test_each_topic_is_deleted_or_unknown(world: MemoryBroker) -> None:
    world.create("orders")
    results = by_name(world, "orders", "clicks")
    assert [(result.name, result.error_code) for result in results] == [
        ("orders", E.NONE),
        ("clicks", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.broker.partitions.get("orders", 0) is None


def test_from_version_6_on_a_topic_has_a_name_or_an_id(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    world.create("clicks")
    results = ask(world, DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="clicks"))
    assert [result.error_code for result in results] == [E.NONE, E.NONE]
    assert (results[0].name, results[0].topic_id) == ("orders", topic_id)
    assert not list(world.broker.image.topics)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (DeleteTopicState(topic_id=UNKNOWN_ID), E.UNKNOWN_TOPIC_ID),
        (DeleteTopicState(name="gone"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (DeleteTopicState(), E.INVALID_REQUEST),
        (DeleteTopicState(name="orders", topic_id=UNKNOWN_ID), E.INVALID_REQUEST),
    ],
)
def test_a_bad_reference_has_its_error(
    world: MemoryBroker, topic: DeleteTopicState, code: ErrorCode
) -> None:
    world.create("orders")
    assert [result.error_code for result in ask(world, topic)] == [code]
    assert world.partition("orders").is_online


def test_a_topic_named_twice_stays(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    topic = DeleteTopicState(topic_id=topic_id)
    assert {result.error_code for result in ask(world, topic, topic)} == {E.INVALID_REQUEST}
    assert world.partition("orders").is_online


@pytest.mark.parametrize(
    ("version", "code"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)]
)
def test_disabled_deletion_has_a_code_of_its_own_from_version_3_on(
    version: int, code: ErrorCode
) -> None:
    with MemoryBroker(delete_topic_enable="false") as world:
        world.create("orders")
        (result,) = by_name(world, "orders", version=version)
        assert result.error_code == code
        assert world.partition("orders").is_online


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_failed_change_fails_every_topic(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    names = ["orders", "clicks"]
    for name in names:
        world.create(name)
    world.metadata.fault = fault
    assert [result.error_code for result in by_name(world, *names)] == [code, code]
