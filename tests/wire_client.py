"""A client of single frames, for requests that no library sends and responses that it hides.

It encodes by `lakelog.wire`, which the oracle tests compare with Apache Kafka's own classes.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api, api_for
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.protocol.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from lakelog.protocol.transactions import InitProducerIdRequest
from lakelog.records.batch import BatchHeader, iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.wire.framing import decode_response, encode_request
from waiting import eventually

TIMEOUT_S = 60.0
FOREVER_MS = 600_000
"""Longer than this client waits: an answer that takes it is a failure."""
FETCH_VERSION = 12
PRODUCE_VERSION = 12
_METADATA_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_LATEST = -1
_MOVING = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}
"""Codes for a partition with another leader, or with a leader that is still new."""
RECENTLY_MS = int(time.time() * 1000) - 3_600_000
"""Old enough to differ from the current time, and too new for retention."""


def host_and_port(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


class WireClient:
    """One connection, to the first broker of the list that accepts it."""

    def __init__(self, bootstrap: str, *, client_id: str = "test") -> None:
        self._client_id = client_id
        self.socket = _connect(bootstrap.split(","))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, message: Any, version: int) -> int:
        """Returns the correlation id."""
        correlation_id = next(self._ids)
        api = api_for(type(message))
        frame = b"".join(encode_request(api, version, correlation_id, self._client_id, message))
        self.socket.sendall(frame)
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Return a frame without its size. Raises `EOFError` if the connection ends."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def receive(self, api: Api, version: int) -> tuple[int, Any]:
        return decode_response(api, version, self.receive_frame())

    def call(self, message: Any, version: int) -> Any:
        sent = self.send(message, version)
        answered, response = self.receive(api_for(type(message)), version)
        assert answered == sent
        return response

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream; false if bytes come, or nothing at all."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for that long and the connection stays open."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        else:
            return False
        finally:
            self.socket.settimeout(TIMEOUT_S)

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                part = self.socket.recv(min(size - len(received), 1 << 20))
            except ConnectionResetError as error:
                raise EOFError("the broker reset the connection") from error
            if not part:
                raise EOFError("the broker closed the connection")
            received += part
        return bytes(received)


def _connect(addresses: Sequence[str]) -> socket.socket:
    for address in addresses[:-1]:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(host_and_port(address), timeout=TIMEOUT_S)
    return socket.create_connection(host_and_port(addresses[-1]), timeout=TIMEOUT_S)


def batch_of(
    *values: bytes,
    producer: tuple[int, int, int] = (-1, -1, -1),
    first_ms: int = RECENTLY_MS,
    transactional: bool = False,
) -> bytes:
    """A record batch of values without keys; `producer` is id, epoch and base sequence."""
    builder = BatchBuilder()
    for index, value in enumerate(values):
        builder.append(first_ms + index, None, value, [])
    return bytes(builder.build(*producer, is_transactional=transactional))


def produce_request(
    topic: str,
    records: bytes,
    *,
    partition: int = 0,
    acks: int = -1,
    transaction: str | None = None,
) -> ProduceRequest:
    """Of versions up to 12, which name the topic."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(client: WireClient, topic: str, records: bytes, *, partition: int = 0) -> Any:
    """Produces one batch with acks=all; the partition's part of the response."""
    request = produce_request(topic, records, partition=partition)
    return client.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 26,
    leader_epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 0,
) -> FetchRequest:
    """Of versions up to 12, which name the topic; `session` is id and epoch."""
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=leader_epoch,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch(client: WireClient, topic: str, offset: int, **options: Any) -> Any:
    """The partition's part of the response to `fetch_request`."""
    response = client.call(fetch_request(topic, offset, **options), FETCH_VERSION)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def stored_batches(
    bootstrap: str, topic: str, partition: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every committed batch of a partition as its leader holds it."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
    ends = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    listed = ask_leader(bootstrap, topic, partition, ends, _LIST_OFFSETS_VERSION)
    assert listed.error_code == 0
    offset, end = 0, listed.offset
    while offset < end:
        request = fetch_request(topic, offset, partition=partition)
        fetched = ask_leader(bootstrap, topic, partition, request, FETCH_VERSION)
        assert fetched.error_code == 0
        for header, batch in iter_batches(fetched.records):
            offset = header.last_offset + 1
            yield header, batch


def ask_leader(bootstrap: str, topic: str, partition: int, request: Any, version: int) -> Any:
    """Return the partition's part of its leader's response to a request for one partition.

    While leaders move, connections end and brokers answer with a code of `_MOVING`.
    """
    return eventually(partial(_asked_once, bootstrap, topic, partition, request, version))


def _asked_once(bootstrap: str, topic: str, partition: int, request: Any, version: int) -> Any:
    try:
        with WireClient(bootstrap) as client:
            view = client.call(_metadata_of(topic), _METADATA_VERSION)
        leader = view.topics[0].partitions[partition].leader_id
        broker = next(each for each in view.brokers if each.node_id == leader)
        with WireClient(f"{broker.host}:{broker.port}") as client:
            response = client.call(request, version)
    except (OSError, EOFError, StopIteration):
        return None
    (of_topic,) = response.topics if hasattr(response, "topics") else response.responses
    is_produce = hasattr(of_topic, "partition_responses")
    (answer,) = of_topic.partition_responses if is_produce else of_topic.partitions
    return None if answer.error_code in _MOVING else answer


def topic_id_of(client: WireClient, topic: str) -> bytes:
    found = described(client, topic)
    assert found.error_code == 0, found
    topic_id: bytes = found.topic_id
    return topic_id


def create_topic(
    client: WireClient, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in (config or {}).items()
                ],
            )
        ],
        timeout_ms=10_000,
    )
    (created,) = client.call(request, 5).topics
    assert created.error_code == 0, created
    for index in range(partitions):
        what = f"the leader of {topic}-{index}"
        eventually(partial(_has_leader, client, topic, index), what=what)


def _has_leader(client: WireClient, topic: str, partition: int) -> bool:
    code: int = fetch(client, topic, 0, partition=partition).error_code
    return code == 0


def described(client: WireClient, topic: str) -> Any:
    """The topic's part of the metadata, without creating it."""
    (found,) = client.call(_metadata_of(topic), _METADATA_VERSION).topics
    return found


def _metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )


def new_producer_id(client: WireClient) -> int:
    response = client.call(InitProducerIdRequest(transactional_id=None), 4)
    assert response.error_code == 0
    producer_id: int = response.producer_id
    return producer_id
