"""Produce requests that bring one batch after the other to the same partition."""

from __future__ import annotations

from struct import Struct

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
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context
from lakelog.server.handlers.produce import check_entry, refused, topic_key
from lakelog.server.reply import Repeat
from lakelog.wire.errors import WireError
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_request, encode_response
from lakelog.wire.primitives import decode_uvarint
from lakelog.wire.template import Template

_VERSION_MIN = 7
"""Older requests may not bring zstd, and older responses do not say where the log starts."""
_AFTER_HEAD = 4
"""What follows the partition's index in a request without records: their length, and tags."""
_TAGS = b"\x00\x00\x00"
_LENGTH = Struct(">i")

_Key = tuple[int, str | bytes, int, int]
"""Version, topic, partition and acks."""


def learn(
    broker: Broker, last: Repeat | None, context: Context, request: ProduceRequest
) -> Repeat | None:
    """What the next request is compared with; prepared by the second one of its kind."""
    key = _key(context.version, request)
    if key is None:
        return None
    repeat = last if isinstance(last, ProduceRepeat) and last.key == key else None
    if repeat is None:
        return ProduceRepeat(broker, context.api, key)
    repeat.prepare(context, request)
    return repeat


def _key(version: int, request: ProduceRequest) -> _Key | None:
    topics = request.topic_data
    if (
        len(topics) == 1
        and len(topics[0].partition_data) == 1
        and request.transactional_id is None
        and request.acks in (1, -1)
        and version >= _VERSION_MIN
    ):
        index = topics[0].partition_data[0].index
        return version, topic_key(topics[0], version), index, request.acks
    return None


class ProduceRepeat:
    """One batch for one partition, outside of any transaction, to be acknowledged."""

    __slots__ = ("_broker", "_context", "_head", "_response", "_tail", "api", "key")

    def __init__(self, broker: Broker, api: Api, key: _Key) -> None:
        self.api = api
        self.key = key
        self._broker = broker
        self._head: Template | None = None

    def prepare(self, context: Context, request: ProduceRequest) -> None:
        self._context = context
        self._tail = _TAGS if context.version >= context.api.flexible_from else b""
        self._head = Template(_head(context, request, 0), _head(context, request, -1), "i")
        self._response = Template(
            _response(context, self.key, 0), _response(context, self.key, -1), "iqqq"
        )

    def answer(self, view: memoryview, start: int, end: int) -> bool:
        head = self._head
        if (
            head is None
            or start + head.size + _AFTER_HEAD > end
            or self._context.connection.is_waiting
        ):
            return False
        found = head.unpack(view, start)
        if found is None:
            return False
        begin, stop = self._records(view, start + head.size)
        if not begin <= stop == end - len(self._tail) or view[stop:end] != self._tail:
            return False
        self._append(found[0], view[begin:stop])
        return True

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

    def _append(self, correlation_id: int, batch: memoryview) -> None:
        broker, context = self._broker, self._context
        version, name, index, acks = self.key
        try:
            partition = broker.partitions.find(name, index)
            check_entry(partition, batch, acks, version, None)
            result = partition.append(batch, broker.clock.wall_ms())
        except KafkaError as error:
            self._refuse(correlation_id, refused(index, error))
            return
        broker.purgatory.check(partition.key)
        base, _, append_time_ms, log_start, _ = result
        frame = self._response.pack(correlation_id, base, append_time_ms, log_start)
        context.connection.queue(frame)

    def _refuse(self, correlation_id: int, result: PartitionProduceResponse) -> None:
        context = self._context.again(correlation_id)
        context.connection.expect(context)
        context.reply(_of_one(self.key, result))


def _head(context: Context, request: ProduceRequest, correlation_id: int) -> bytes:
    """The encoding of `request` from the API's key to the partition's index."""
    topic = request.topic_data[0]
    entry = PartitionProduceData(index=topic.partition_data[0].index, records=b"")
    message = ProduceRequest(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[entry])
        ],
    )
    parts = encode_request(context.api, context.version, correlation_id, context.client_id, message)
    return b"".join(parts)[FRAME_SIZE_BYTES:-_AFTER_HEAD]


def _response(context: Context, key: _Key, number: int) -> bytes:
    """The encoding of a response with `number` wherever it depends on the batch."""
    result = PartitionProduceResponse(
        index=key[2], base_offset=number, log_append_time_ms=number, log_start_offset=number
    )
    parts = encode_response(context.api, context.version, number, _of_one(key, result))
    return b"".join(parts)


def _of_one(key: _Key, result: PartitionProduceResponse) -> ProduceResponse:
    _, name, _, _ = key
    topic = TopicProduceResponse(partition_responses=[result])
    if isinstance(name, str):
        topic.name = name
    else:
        topic.topic_id = name
    return ProduceResponse(responses=[topic])
