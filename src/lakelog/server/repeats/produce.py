"""Produce requests that bring one batch after the other to the same partition."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from lakelog.base.errors import KafkaError
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from lakelog.protocol.registry import Api
from lakelog.replica.fetch_session import PartitionKey
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context
from lakelog.server.handlers.produce import check_entry, refused, topic_key
from lakelog.server.repeats.known import KnownRequest, learn_known
from lakelog.server.reply import Repeat
from lakelog.storage.validate import SlowBatchError
from lakelog.wire.errors import WireError
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_request, encode_response
from lakelog.wire.primitives import decode_uvarint
from lakelog.wire.template import Template

_VERSION_MIN = 7
"""Older requests may not bring zstd, and older responses do not say where the log starts."""
_LENGTH_AND_TAGS = 4
"""Bytes after the partition's index of a request without records."""
_LENGTH = Struct(">i")


class _Key(NamedTuple):
    """All that one request of a kind says, but for the batch."""

    client_id: str
    version: int
    acks: int
    timeout_ms: int
    topic: str
    topic_id: bytes
    partition: int


def learn(
    broker: Broker, last: Repeat | None, context: Context, request: ProduceRequest
) -> Repeat | None:
    """As `learn_known`."""
    key = _key(context, request)
    if key is None:
        return None
    place = topic_key(request.topic_data[0], key.version), key.partition
    return learn_known(ProduceRepeat, broker, last, context, key, place, key.topic)


def _key(context: Context, request: ProduceRequest) -> _Key | None:
    topics, version = request.topic_data, context.version
    if (
        len(topics) != 1
        or len(topics[0].partition_data) != 1
        or request.transactional_id is not None
        or request.acks not in (1, -1)
        or version < _VERSION_MIN
    ):
        return None
    topic = topics[0]
    return _Key(
        context.client_id,
        version,
        request.acks,
        request.timeout_ms,
        topic.name,
        topic.topic_id,
        topic.partition_data[0].index,
    )


class ProduceRepeat(KnownRequest[_Key]):
    """One batch for one partition, outside of any transaction, to be acknowledged."""

    __slots__ = ("_head", "_response")

    def __init__(self, broker: Broker, context: Context, key: _Key, place: PartitionKey) -> None:
        super().__init__(broker, context, key, place)
        self._head: Template | None = None

    def prepare(self) -> None:
        if self._head is None:
            api, key = self.api, self.key
            self._head = Template(_head(api, key, 0), _head(api, key, -1), "i")
            self._response = Template(_response(api, key, 0), _response(api, key, -1), "iqqq")

    def answer(self, view: memoryview, start: int, end: int) -> bool:
        head = self._head
        if head is None or start + head.size + _LENGTH_AND_TAGS > end:
            return False
        found = head.unpack(view, start)
        if found is None or self._connection.is_waiting:
            return False
        begin, stop = self._records(view, start + head.size)
        if not begin <= stop == end - len(self._tail) or view[stop:end] != self._tail:
            return False
        return self._append(found[0], view[begin:stop])

    def _records(self, view: memoryview, position: int) -> tuple[int, int]:
        """Where the records begin and end, by their length at `position`."""
        if not self._tail:
            (length,) = _LENGTH.unpack_from(view, position)
            return position + _LENGTH.size, position + _LENGTH.size + length
        try:
            length, position = decode_uvarint(view, position)
        except (IndexError, WireError):
            return 0, -1
        return position, position + length - 1

    def _append(self, correlation_id: int, batch: memoryview) -> bool:
        """Whether it was appended or refused: not if its acknowledgement would have to wait."""
        broker, key = self._broker, self.key
        try:
            partition = broker.partitions.find(*self.place)
            if partition.commits_durable:
                return False
            check_entry(partition, batch, key.acks, key.version, None)
            result = partition.append(batch, broker.clock.wall_ms())
        except SlowBatchError:
            return False
        except KafkaError as error:
            broker.requests.errors[self.api.name, error.code] += 1
            self._refuse(correlation_id, error)
            return True
        broker.purgatory.check(partition.key)
        base, _, append_time_ms, log_start, _ = result
        self._connection.queue(self._response.pack(correlation_id, base, append_time_ms, log_start))
        return True

    def _refuse(self, correlation_id: int, error: KafkaError) -> None:
        key = self.key
        context = Context(self._connection, self.api, key.version, correlation_id, key.client_id)
        self._connection.expect(context)
        context.reply(_of_one(key, refused(key.partition, error)))


def _head(api: Api, key: _Key, correlation_id: int) -> bytes:
    """The encoding of a request from the API's key to the partition's index."""
    entry = PartitionProduceData(index=key.partition, records=b"")
    topic = TopicProduceData(name=key.topic, topic_id=key.topic_id, partition_data=[entry])
    message = ProduceRequest(acks=key.acks, timeout_ms=key.timeout_ms, topic_data=[topic])
    parts = encode_request(api, key.version, correlation_id, key.client_id, message)
    return b"".join(parts)[FRAME_SIZE_BYTES:-_LENGTH_AND_TAGS]


def _response(api: Api, key: _Key, number: int) -> bytes:
    """The encoding of a response with `number` wherever it depends on the request."""
    result = PartitionProduceResponse(
        index=key.partition,
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
    )
    return b"".join(encode_response(api, key.version, number, _of_one(key, result)))


def _of_one(key: _Key, result: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(
        name=key.topic, topic_id=key.topic_id, partition_responses=[result]
    )
    return ProduceResponse(responses=[topic])
