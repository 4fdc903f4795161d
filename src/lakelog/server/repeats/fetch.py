"""Fetch requests of one partition, one offset after the other, that find records at once."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from lakelog.base.errors import KafkaError
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.protocol.registry import Api
from lakelog.replica.fetch_session import (
    SESSIONLESS_EPOCH,
    TOPIC_IDS_SINCE,
    FetchTarget,
    PartitionKey,
    topic_fields,
)
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context
from lakelog.server.handlers.fetch import READ_COMMITTED, ZSTD_SINCE, read_one
from lakelog.server.repeats.known import KnownRequest, learn_known
from lakelog.server.reply import Repeat
from lakelog.storage.checking import NotChecked
from lakelog.storage.handles import LogSlice
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_request, encode_response
from lakelog.wire.primitives import encode_uvarint
from lakelog.wire.template import Template

_LENGTH_AND_TAGS = 4
"""Bytes after the last field but `records` of a response without any."""
_encode_length = Struct(">i").pack


class _Key(NamedTuple):
    """All that one request of a kind says, but for the offset and the session's epoch."""

    client_id: str
    version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    topic: str | bytes
    partition: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    rack_id: str


def learn(
    broker: Broker, last: Repeat | None, context: Context, request: FetchRequest
) -> Repeat | None:
    """As `learn_known`.

    A request that leaves its session as it is leaves `last` as it is: there was nothing new.
    """
    if request.session_id and not request.topics and not request.forgotten_topics_data:
        return last
    key = _key(context, request)
    if key is None:
        return None
    place, names = (key.topic, key.partition), (request.topics[0].topic, key.rack_id)
    return learn_known(FetchRepeat, broker, last, context, key, place, *names)


def _key(context: Context, request: FetchRequest) -> _Key | None:
    topics, version = request.topics, context.version
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or request.forgotten_topics_data
        or version < ZSTD_SINCE
    ):
        return None
    entry = topics[0].partitions[0]
    return _Key(
        context.client_id,
        version,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        topics[0].topic_id if version >= TOPIC_IDS_SINCE else topics[0].topic,
        entry.partition,
        entry.current_leader_epoch,
        entry.last_fetched_epoch,
        entry.log_start_offset,
        entry.partition_max_bytes,
        request.rack_id,
    )


class FetchRepeat(KnownRequest[_Key]):
    """One partition, fetched without a session or as the only one of its session."""

    __slots__ = ("_request", "_response", "_target")

    def __init__(self, broker: Broker, context: Context, key: _Key, place: PartitionKey) -> None:
        super().__init__(broker, context, key, place)
        self._request: Template | None = None

    def prepare(self) -> None:
        if self._request is not None:
            return
        api, key = self.api, self.key
        self._request = Template(_request(api, key, 0), _request(api, key, -1), "iiq")
        self._response = Template(_response(api, key, 0), _response(api, key, -1), "iiqqq")
        self._target = FetchTarget(
            key.topic,
            key.partition,
            0,
            key.partition_max_bytes,
            key.current_leader_epoch,
            key.last_fetched_epoch,
        )

    def answer(self, view: memoryview, start: int, end: int) -> bool:
        request = self._request
        if request is None or end - start != request.size or self._connection.is_waiting:
            return False
        found = request.unpack(view, start)
        return found is not None and self._read(*found)

    def _read(self, correlation_id: int, epoch: int, offset: int) -> bool:
        """Answers if there are records enough, and nothing is to be told but them."""
        broker, key, target = self._broker, self.key, self._target
        session = None
        if key.session_id:
            session = broker.fetch_sessions.of_one(key.session_id, epoch, self.place)
        if session is None and (key.session_id or epoch != SESSIONLESS_EPOCH):
            return False
        target.fetch_offset = offset
        target.max_bytes = key.partition_max_bytes
        target.current_leader_epoch = key.current_leader_epoch
        bytes_max = min(key.max_bytes, broker.fetch_bytes_max)
        committed = key.isolation_level == READ_COMMITTED
        try:
            partition, records, aborted = read_one(
                broker, target, bytes_max, committed=committed, min_one=True
            )
        except NotChecked as first:
            first.job.abandon()
            return False
        except KafkaError:
            return False
        if records is None:
            return False
        if aborted or records.size < min(key.min_bytes, bytes_max):
            records.release()
            return False
        if session is not None:
            session.advance(self._connection.last_active)
            session.targets[self.place] = target
        self._send(correlation_id, partition, records)
        return True

    def _send(self, correlation_id: int, partition: Partition, records: LogSlice) -> None:
        target, response, size = self._target, self._response, records.size
        target.sent_high_watermark = high_watermark = partition.high_watermark
        partition.fetched_bytes += size
        target.sent_log_start_offset = log_start = partition.log.log_start_offset
        tail = self._tail
        length = encode_uvarint(size + 1) if tail else _encode_length(size)
        head = response.pack(
            response.size - FRAME_SIZE_BYTES + len(length) + size + len(tail),
            correlation_id,
            high_watermark,
            partition.last_stable_offset,
            log_start,
        )
        self._connection.queue_slice(records, head + length, tail)


def _request(api: Api, key: _Key, number: int) -> bytes:
    """The encoding of a request, from the API's key on, with `number` wherever one may differ."""
    entry = FetchPartition(
        partition=key.partition,
        current_leader_epoch=key.current_leader_epoch,
        fetch_offset=number,
        last_fetched_epoch=key.last_fetched_epoch,
        log_start_offset=key.log_start_offset,
        partition_max_bytes=key.partition_max_bytes,
    )
    name, topic_id = topic_fields(key.topic)
    message = FetchRequest(
        max_wait_ms=key.max_wait_ms,
        min_bytes=key.min_bytes,
        max_bytes=key.max_bytes,
        isolation_level=key.isolation_level,
        session_id=key.session_id,
        session_epoch=number,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[entry])],
        rack_id=key.rack_id,
    )
    parts = encode_request(api, key.version, number, key.client_id, message)
    return b"".join(parts)[FRAME_SIZE_BYTES:]


def _response(api: Api, key: _Key, number: int) -> bytes:
    """The encoding of a response up to its records' length, with `number` for what may differ."""
    data = PartitionData(
        partition_index=key.partition,
        high_watermark=number,
        last_stable_offset=number,
        log_start_offset=number,
        aborted_transactions=[] if key.isolation_level == READ_COMMITTED else None,
        records=b"",
    )
    name, topic_id = topic_fields(key.topic)
    topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[data])
    message = FetchResponse(session_id=key.session_id, responses=[topic])
    frame = b"".join(encode_response(api, key.version, number, message))
    size = number.to_bytes(FRAME_SIZE_BYTES, "big", signed=True)
    return size + frame[FRAME_SIZE_BYTES:-_LENGTH_AND_TAGS]
