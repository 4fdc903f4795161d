"""Changes of the metadata that clients request from any broker."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.cluster import UnregisterBrokerRequest, UpdateFeaturesRequest
from lakelog.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalResource,
)
from lakelog.protocol.groups import HeartbeatRequest
from lakelog.protocol.registry import APIS
from lakelog.protocol.replicas import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from lakelog.protocol.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from lakelog.server.inter_broker.exchange import PeerDisconnectedError, PeerUnreachableError
from lakelog.server.requests.metrics import codes_in
from lakelog.server.routes import advertised_apis, at_controller, served_apis
from lakelog.server.served_api import ServedApi
from lakelog.wire.schema import Message
from memory_broker import MemoryBroker


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("served_api", served_apis(), ids=lambda each: each.api.name)
def test_a_handler_is_named_by_its_api_and_says_so_first(served_api: ServedApi[Any]) -> None:
    api, handle = served_api.api, served_api.handle
    assert handle.__name__ == _snake(api.name)
    assert (handle.__doc__ or "").startswith(f"{api.name} ({api.key}): ")


@pytest.mark.parametrize("served_api", served_apis(), ids=lambda each: each.api.name)
def test_a_handler_is_in_the_family_of_its_messages(served_api: ServedApi[Any]) -> None:
    family = served_api.request.__module__.removeprefix("lakelog.protocol.")
    assert served_api.handle.__module__ == f"lakelog.server.handlers.{family}"


def test_every_api_of_the_registry_has_one_handler() -> None:
    assert [each.api for each in served_apis()] == [APIS[key] for key in sorted(APIS)]


def test_apis_are_advertised_in_the_served_versions_except_produce() -> None:
    ranges = {
        each.api_key: (each.min_version, each.max_version)
        for each in advertised_apis(in_cluster=True)
    }
    declared = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    assert ranges == declared | {0: (0, declared[0][1])}


def _served(versions: str | None = None, advertised: str | None = None) -> ServedApi[Any]:
    return ServedApi(
        HeartbeatRequest,
        lambda *_: None,
        done="Everything.",
        versions=versions,
        advertised=advertised,
    )


def test_a_handler_may_serve_fewer_versions_than_the_protocol_declares() -> None:
    narrow = _served(versions="1-3")
    row = narrow.advertised_row
    assert (row.api_key, row.min_version, row.max_version) == (12, 1, 3)
    assert repr(_served().served_versions) == "0-4"
    row = _served(versions="1-3", advertised="0-3").advertised_row
    assert (row.min_version, row.max_version) == (0, 3)


@pytest.mark.parametrize(
    "options",
    [{"versions": "0-5"}, {"versions": "3-2"}, {"versions": "0-3", "advertised": "0-4"}],
)
def test_no_version_is_served_undeclared_or_offered_beyond_the_newest_served_one(
    options: dict[str, str],
) -> None:
    with pytest.raises(AssertionError):
        _served(**options)


def test_only_apis_that_copy_nothing_are_decoded_in_place_and_only_the_hot_ones_learn() -> None:
    in_place = {each.api.name for each in served_apis() if each.in_place}
    assert in_place == {"Produce", "Fetch", "ListOffsets"}
    learning = {each.api.name for each in served_apis() if each.cache_request is not None}
    assert learning == {"Produce", "Fetch"}


def test_a_broker_alone_does_not_serve_the_apis_between_brokers() -> None:
    """Any client could otherwise register brokers, and change the ISR of partitions."""
    alone = {each.api_key for each in advertised_apis(in_cluster=False)}
    assert set(APIS) - alone == {56, 62, 63, 67}


FORWARDED = {19, 20, 33, 37, 43, 44, 45, 57, 64}
GONE = ControllerTerm(2, 50)
REQUESTS: list[Message] = [
    CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
    AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
    ElectLeadersRequest(topic_partitions=None),
    IncrementalAlterConfigsRequest(
        resources=[IncrementalResource(resource_type=2, resource_name="t")]
    ),
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
