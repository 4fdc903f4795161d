"""ApiVersions, Metadata, ListOffsets, FindCoordinator and InitProducerId, version by version."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from client_apis import CLIENT_APIS
from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.transactions import InitProducerIdRequest
from lakelog.wire.codec import decode
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, described, host_and_port, produce

START_MS = int(time.time() * 1000) - 3_600_000


def _ranges(response: Any) -> dict[int, tuple[int, int]]:
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_api_versions(wire: WireClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-test", client_software_version="1.0")
    response = wire.call(request, version)
    assert response.error_code == 0
    ranges = _ranges(response)
    # Produce 0 to 2 are advertised for old librdkafka (KAFKA-18659), and not served.
    assert ranges[0] == (0, 13)
    for api in CLIENT_APIS.values():
        assert api.key == 0 or ranges[api.key][0] == api.min_version


@pytest.mark.usefixtures("lakelog_only")
def test_the_advertised_ranges_are_those_implemented(wire: WireClient) -> None:
    ranges = _ranges(wire.call(ApiVersionsRequest(), 0))
    expected = {api.key: (api.min_version, api.max_version) for api in CLIENT_APIS.values()}
    assert ranges == expected | {0: (0, 13)}


def test_api_versions_of_the_future_is_answered_in_version_0(wire: WireClient) -> None:
    body = b"\xff" * 30
    header = bytes([0, 18, 0, 99, 0, 0, 0, 77, 0, 1, ord("c"), 0])
    wire.send_bytes((len(header) + len(body)).to_bytes(4, "big") + header + body)
    frame = wire.receive_frame()
    assert int.from_bytes(frame[:4], "big") == 77
    response = decode(ApiVersionsResponse, frame, 0, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert _ranges(response)[18][0] == 0
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_a_malformed_client_name(wire: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="bad name!", client_software_version="1")
    assert wire.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_a_topic(wire: WireClient, unused: str, version: int, bootstrap: str) -> None:
    create_topic(wire, unused, 2)
    response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=unused)]), version)
    (broker,) = response.brokers
    assert (broker.host, broker.port) == host_and_port(bootstrap)
    (found,) = response.topics
    assert (found.error_code, found.name) == (0, unused)
    assert sorted(entry.partition_index for entry in found.partitions) == [0, 1]
    for entry in found.partitions:
        assert entry.error_code == 0
        assert entry.leader_id == broker.node_id
        assert entry.replica_nodes == entry.isr_nodes == [broker.node_id]
        assert version < 7 or entry.leader_epoch >= 0
    assert version < 2 or response.cluster_id
    assert version < 10 or found.topic_id != bytes(16)


def test_internal_topics_are_marked(wire: WireClient, topic: str) -> None:
    assert wire.call(FindCoordinatorRequest(key="a group"), 2) is not None
    offsets = eventually(lambda: _found(wire, "__consumer_offsets"), what="the offsets topic")
    assert offsets.is_internal
    assert not described(wire, topic).is_internal


def _found(wire: WireClient, topic: str) -> Any:
    found = described(wire, topic)
    return found if found.error_code == 0 else None


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_none(wire: WireClient, topic: str, version: int) -> None:
    every = wire.call(MetadataRequest(topics=None if version else []), version)
    assert topic in {found.name for found in every.topics}
    if version:
        assert wire.call(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("version", range(4, 14))
def test_a_topic_is_created_only_if_allowed(wire: WireClient, unused: str, version: int) -> None:
    def ask(allowed: bool) -> Any:
        wanted = [MetadataRequestTopic(name=unused)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allowed)
        return wire.call(request, version).topics[0]

    for _ in range(2):
        assert ask(allowed=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    first = ask(allowed=True).error_code
    assert first in (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
    eventually(lambda: ask(allowed=False).error_code == 0, what="the topic")
    assert len(ask(allowed=False).partitions) == 1


def test_an_invalid_name_is_not_created(wire: WireClient) -> None:
    for allowed in (True, False):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="no spaces please")],
            allow_auto_topic_creation=allowed,
        )
        assert wire.call(request, 12).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_by_its_id(wire: WireClient, topic: str, version: int) -> None:
    topic_id = described(wire, topic).topic_id

    def ask(wanted: bytes) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=wanted, name=None)])
        return wire.call(request, version).topics[0]

    assert (ask(topic_id).error_code, ask(topic_id).name) == (0, topic)
    unknown = ask(uuid.uuid4().bytes)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def _list_offsets(wire: WireClient, topic: str, version: int, timestamp: int, epoch: int) -> Any:
    wanted = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        timeout_ms=5000,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    return wire.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(wire: WireClient, topic: str, version: int) -> None:
    def ask(timestamp: int, epoch: int = -1) -> tuple[int, int, int]:
        found = _list_offsets(wire, topic, version, timestamp, epoch)
        return found.error_code, found.offset, found.timestamp

    assert ask(-1) == ask(-2) == (0, 0, -1)
    assert ask(START_MS) == (0, -1, -1)
    produce(wire, topic, batch_of(b"a", b"b", b"c", first_ms=START_MS))
    produce(wire, topic, batch_of(b"late", first_ms=START_MS - 1000))

    assert ask(-1) == (0, 4, -1)
    assert ask(-2) == (0, 0, -1)
    assert ask(START_MS) == (0, 0, START_MS)
    assert ask(START_MS + 1) == (0, 1, START_MS + 1)
    assert ask(START_MS + 3) == (0, -1, -1)
    if version >= 4:
        leader_epoch = described(wire, topic).partitions[0].leader_epoch
        assert ask(-1, leader_epoch) == (0, 4, -1)
        assert ask(-1, leader_epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert _list_offsets(wire, topic, version, -1, -1).leader_epoch == leader_epoch
    if version >= 7:
        assert ask(-3) == (0, 2, START_MS + 2)
    if version >= 8:
        assert ask(-4) == (0, 0, -1)
    if version >= 9:
        assert ask(-5) == (0, -1, -1)


def test_list_offsets_of_the_unknown(wire: WireClient, unused: str) -> None:
    found = _list_offsets(wire, unused, 7, -1, -1)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(wire: WireClient, version: int, bootstrap: str) -> None:
    request = FindCoordinatorRequest(key="a group", coordinator_keys=["a group", "another"])

    def ask() -> list[Any]:
        """A broker may need a moment to make the offsets topic."""
        response = wire.call(request, version)
        coordinators = response.coordinators if version >= 4 else [response]
        return [] if any(coordinator.error_code for coordinator in coordinators) else coordinators

    coordinators = eventually(ask, what="a coordinator")
    assert {(coordinator.host, coordinator.port) for coordinator in coordinators} == {
        host_and_port(bootstrap)
    }
    if version >= 4:
        assert [coordinator.key for coordinator in coordinators] == ["a group", "another"]


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_never_given_twice(wire: WireClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    given = [wire.call(request, version) for _ in range(5)]
    assert {(entry.error_code, entry.producer_epoch) for entry in given} == {(0, 0)}
    ids = [entry.producer_id for entry in given]
    assert ids == sorted(set(ids))
    assert ids[0] >= 0


def test_produce_0_to_2_close_the_connection(bootstrap: str) -> None:
    for version in range(3):
        with WireClient(bootstrap) as client:
            header = bytes([0, 0, 0, version, 0, 0, 0, 1, 0xFF, 0xFF])
            body = b"\x00\x01" + b"\x00" * 8
            client.send_bytes((len(header) + len(body)).to_bytes(4, "big") + header + body)
            assert client.is_closed_by_broker()


def test_every_api_answers_its_lowest_version(wire: WireClient) -> None:
    """An empty request of each API is answered or refused, but its connection stays."""
    for key in (8, 9, 12, 13, 15, 16, 19, 20, 32, 35, 37, 44, 60):
        api = CLIENT_APIS[key]
        assert wire.call(api.request(), api.min_version) is not None, api
    assert api_for(ApiVersionsRequest).key == 18
