"""Changes of the metadata that clients request from any broker."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.alter_configs import AlterConfigsRequest, AlterConfigsResource
from lakelog.protocol.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from lakelog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lakelog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from lakelog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lakelog.protocol.elect_leaders import ElectLeadersRequest
from lakelog.protocol.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from lakelog.protocol.incremental_alter_configs import IncrementalAlterConfigsRequest
from lakelog.protocol.unregister_broker import UnregisterBrokerRequest
from lakelog.protocol.update_features import UpdateFeaturesRequest
from lakelog.server.forwarding import at_controller
from lakelog.server.peers.errors import PeerDisconnectedError, PeerUnreachableError
from lakelog.server.requests.error_codes import codes_in
from lakelog.server.routes import served_apis
from lakelog.wire.schema import Message
from memory_broker import MemoryBroker

FORWARDED = {19, 20, 33, 37, 43, 44, 45, 57, 64}
GONE = ControllerTerm(2, 50)
REQUESTS: list[Message] = [
    CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
    AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
    ElectLeadersRequest(topic_partitions=None),
    IncrementalAlterConfigsRequest(resources=[ChangedResource(resource_type=2, resource_name="t")]),
    AlterPartitionReassignmentsRequest(),
    UpdateFeaturesRequest(),
    UnregisterBrokerRequest(broker_id=7),
]


class LostController:
    """The connection to another controller; each request meets the error."""

    def __init__(self, error: KafkaError) -> None:
        self.error = error
        self.sent: list[Message] = []

    async def request(self, message: Message, *, timeout_s: float, newest: int) -> Message:
        self.sent.append(message)
        raise self.error


def test_the_apis_that_change_the_metadata_are_sent_on() -> None:
    assert {each.api.key for each in served_apis() if each.by_controller} == FORWARDED
    assert {served(each).api.key for each in REQUESTS} == FORWARDED


def test_a_client_gets_its_topic_although_the_controller_has_died() -> None:
    with MemoryBroker() as world:
        world.metadata._term = GONE
        world.broker.metadata._learn(GONE)
        response = world.ask(sent_on(REQUESTS[0]), REQUESTS[0], 7)
        assert list(codes_in(response)) == []
        assert world.partition("t").is_online


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_that_the_controller_may_carry_out_later_is_left_to_the_client(
    request_: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = LostController(PeerDisconnectedError("the connection was lost"))
    with MemoryBroker() as world:
        ask_elsewhere(world, lost, monkeypatch)
        newest = served(request_).served_versions.highest
        response = world.ask(sent_on(request_), request_, newest)
        assert len(lost.sent) == 1
        assert set(codes_in(response)) == {ErrorCode.REQUEST_TIMED_OUT}


def test_a_request_that_was_not_sent_is_repeated_and_refused_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = LostController(PeerUnreachableError("no connection"))
    with MemoryBroker() as world:
        ask_elsewhere(world, lost, monkeypatch)
        response = world.ask(sent_on(REQUESTS[0]), REQUESTS[0], 7)
        assert len(lost.sent) > 1
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.BROKER_NOT_AVAILABLE
        assert topic.error_message == "no connection"


def ask_elsewhere(
    world: MemoryBroker, lost: LostController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have broker 2 be the controller, as far as this one knows."""
    monkeypatch.setattr(world.broker.metadata, "_learn", lambda term: None)
    monkeypatch.setattr(world.broker.metadata, "_term", GONE)
    monkeypatch.setattr(world.broker.controller_link, "_peer", lambda node_id: lost)


def served(request: Message) -> Any:
    return next(each for each in served_apis() if each.request is type(request))


def sent_on(request: Message) -> Any:
    """Return the route of the request, as a handler."""
    found = served(request)

    def route(broker: Any, context: Any, request: Any) -> Any:
        return at_controller(broker, found.handle, found.by_controller, context, request)

    return route
