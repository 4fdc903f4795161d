"""An administrator puts replicas on the brokers in the metadata."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from lakelog.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from scripted_clients import ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.expander import Expander

BROKERS = (1, 2, 4)


def expander(world: ScriptedWorld, partitions: list[Place]) -> Expander:
    return Expander(world.context, "expander", "growing", [partitions])


def described(count: int) -> tuple[type[MetadataRequest], MetadataResponse]:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(count)]
    topic = MetadataResponseTopic(name="growing", partitions=partitions)
    return MetadataRequest, MetadataResponse(topics=[topic])


def test_new_partitions_are_noted_for_other_clients() -> None:
    grown = CreatePartitionsTopicResult(name="growing")
    created = CreatableTopicResult(name="growing0")
    partitions: list[Place] = [("growing", 0)]
    with scripted_world() as world:
        client = expander(world, partitions)
        broker = world.answer(
            client,
            described(1),
            described(2),
            described(2),
            (CreatePartitionsRequest, CreatePartitionsResponse(results=[grown])),
            (CreateTopicsRequest, CreateTopicsResponse(topics=[created])),
        )
        for _ in range(20):
            world.play(client._expand(BROKERS))
        grown_to = [request.topics[0] for request in broker.sent(CreatePartitionsRequest)]
        assert any(isinstance(request, CreateTopicsRequest) for request in broker.requests)
    for topic in grown_to:
        assert topic.assignments is not None
        assert all(set(each.broker_ids) <= set(BROKERS) for each in topic.assignments)
    assert {topic.count for topic in grown_to} <= {2, 3}
    assert ("growing", 1) in partitions
    assert {name for name, _ in partitions} > {"growing"}


@pytest.mark.parametrize(
    ("code", "is_violation"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, False),
        (ErrorCode.INVALID_CONFIG, True),
    ],
)
def test_a_removed_broker_is_unregistered(code: ErrorCode, is_violation: bool) -> None:
    with scripted_world() as world:
        client = expander(world, [])
        broker = world.answer(
            client, (UnregisterBrokerRequest, UnregisterBrokerResponse(error_code=code))
        )
        world.context.brokers.removed = {3}  # type: ignore[misc]
        world.play(client._unregister_removed())
        (request,) = broker.sent(UnregisterBrokerRequest)
        assert request.broker_id == 3
        assert world.findings.broken == ({Law.ANSWERS} if is_violation else set())
        assert world.findings.counts["removed brokers unregistered"] == (not code)
