"""Topics that simulated clients create."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from scripted_clients import scripted_world
from simulator.checkers.laws import Law
from simulator.clients.client import Client
from simulator.clients.topics import add_partitions, create_assigned, create_topic


def created(code: int) -> tuple[type[CreateTopicsRequest], CreateTopicsResponse]:
    result = CreatableTopicResult(name="topic", error_code=code)
    return CreateTopicsRequest, CreateTopicsResponse(topics=[result])


def test_settings_of_the_workload_override_the_small_segments() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        broker = world.answer(client, created(0))
        config = {"internal.segment.bytes": "4000", "cleanup.policy": "compact"}
        assert world.play(create_topic(client, "topic", 3, config))
        (request,) = broker.sent(CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("topic", 3, 1)
    assert {entry.name: entry.value for entry in topic.configs} == {
        "internal.segment.bytes": "4000",
        "segment.index.bytes": "120",
        "cleanup.policy": "compact",
    }


@pytest.mark.parametrize(
    "code",
    [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_a_transient_error_is_retried(code: ErrorCode) -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        broker = world.answer(client, created(code), created(code), created(0))
        assert world.play(create_topic(client, "topic", 1, {}))
        assert len(broker.requests) == 3
        assert not world.findings.violations


def test_a_topic_found_after_a_lost_response_may_be_of_another_client() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        exists = created(ErrorCode.TOPIC_ALREADY_EXISTS)
        world.answer(client, (CreateTopicsRequest, None), exists)
        assert not world.play(create_topic(client, "topic", 1, {}))
        assert not world.findings.violations


def test_another_error_is_a_violation_and_ends_the_retries() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        broker = world.answer(client, created(ErrorCode.INVALID_CONFIG))
        assert not world.play(create_topic(client, "topic", 1, {}))
        assert world.findings.broken == {Law.ANSWERS}
        assert len(broker.requests) == 1


@pytest.mark.parametrize(
    ("code", "is_grown"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.INVALID_PARTITIONS, True),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, False),
        (ErrorCode.NOT_CONTROLLER, False),
    ],
)
def test_a_topic_grows_with_these_replicas(code: ErrorCode, is_grown: bool) -> None:
    result = CreatePartitionsTopicResult(name="topic", error_code=code)
    with scripted_world() as world:
        client = Client(world.context, "client")
        answer = CreatePartitionsRequest, CreatePartitionsResponse(results=[result])
        broker = world.answer(client, answer)
        assert world.play(add_partitions(client, "topic", 3, [[4, 1, 2]])) is is_grown
        assert not world.findings.violations
        (request,) = broker.sent(CreatePartitionsRequest)
    (topic,) = request.topics
    assert topic.count == 3
    assert topic.assignments is not None
    assert [each.broker_ids for each in topic.assignments] == [[4, 1, 2]]


def test_a_topic_is_created_with_these_replicas() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        broker = world.answer(client, created(ErrorCode.INVALID_REPLICA_ASSIGNMENT))
        world.play(create_assigned(client, "topic", [[4, 1], [1, 2]]))
        assert not world.findings.violations
        (request,) = broker.sent(CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert {each.partition_index: each.broker_ids for each in topic.assignments} == {
        0: [4, 1],
        1: [1, 2],
    }
