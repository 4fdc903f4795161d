"""Fetch requests and responses of one partition, as templates with a few numbers."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from lakelog.protocol.api import Api
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from lakelog.replica.fetch_session import FetchTarget, topic_fields
from lakelog.replica.partition import Partition
from lakelog.server.fetches.reading import READ_COMMITTED
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_request, encode_response
from lakelog.wire.primitives import encode_uvarint
from lakelog.wire.template import Template

_LENGTH_AND_TAGS = 4
"""Bytes after the last field before `records`, of a response without records."""
_encode_length = Struct(">i").pack


class FetchKey(NamedTuple):
    """All fields of a request except the offset and the session's epoch."""

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
    replica_id: int = -1
    """The follower that fetches; -1 for a consumer."""
    replica_epoch: int = -1


class FetchFrames:
    """The templates of one key. `tail` follows the records of a response."""

    __slots__ = ("_length", "_nothing", "_response", "message", "request", "tail", "unchanged")

    def __init__(self, api: Api, key: FetchKey, tail: bytes) -> None:
        self.tail = tail
        self.message = _message(key, 0)
        """Such a request, decoded."""
        self.request = Template(_request(api, key, 0), _request(api, key, -1), "iiq")
        """The holes are the correlation id, the session's epoch and the offset."""
        self._response = Template(_response(api, key, 0), _response(api, key, -1), "iiqqq")
        self._length = -1, 0, b""
        """The last size of records, the length of that response, and the encoded size."""
        self.unchanged: Template | None = None
        """A request that names no partition, because the session has it."""
        self._nothing: Template | None = None
        if key.session_id:
            self.unchanged = Template(_unchanged(api, key, 0), _unchanged(api, key, -1), "ii")
            self._nothing = Template(_nothing(api, key, 0), _nothing(api, key, -1), "i")

    def head(
        self, correlation_id: int, partition: Partition, target: FetchTarget, size: int
    ) -> bytes:
        """Return a response up to its `size` bytes of records.

        The sent offsets are noted in `target`: a session omits partitions without changes.
        """
        response = self._response
        target.sent_high_watermark = high_watermark = partition.watermark.offset
        target.sent_log_start_offset = log_start = partition.log.log_start_offset
        last_size, rest, length = self._length
        # Batches of one producer mostly have the same size, so the encoded length is kept.
        if last_size != size:
            length = encode_uvarint(size + 1) if self.tail else _encode_length(size)
            rest = response.size - FRAME_SIZE_BYTES + len(length) + size + len(self.tail)
            self._length = size, rest, length
        stable = partition.last_stable_offset
        return response.pack(rest, correlation_id, high_watermark, stable, log_start) + length

    def nothing(self, correlation_id: int) -> bytes:
        """Return the response of a session without changes; the request has a session."""
        assert self._nothing is not None
        return self._nothing.pack(correlation_id)


def _message(key: FetchKey, number: int, *, named: bool = True) -> FetchRequest:
    entry = FetchPartition(
        partition=key.partition,
        current_leader_epoch=key.current_leader_epoch,
        fetch_offset=number,
        last_fetched_epoch=key.last_fetched_epoch,
        log_start_offset=key.log_start_offset,
        partition_max_bytes=key.partition_max_bytes,
    )
    name, topic_id = topic_fields(key.topic)
    topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[entry])
    return FetchRequest(
        max_wait_ms=key.max_wait_ms,
        min_bytes=key.min_bytes,
        max_bytes=key.max_bytes,
        isolation_level=key.isolation_level,
        session_id=key.session_id,
        session_epoch=number,
        topics=[topic] if named else [],
        rack_id=key.rack_id,
        replica_state=ReplicaState(replica_id=key.replica_id, replica_epoch=key.replica_epoch),
    )


def _request(api: Api, key: FetchKey, number: int) -> bytes:
    """Encode a request from the API's key on, with `number` in every place that may differ."""
    parts = encode_request(api, key.version, number, key.client_id, _message(key, number))
    return b"".join(parts)[FRAME_SIZE_BYTES:]


def _unchanged(api: Api, key: FetchKey, number: int) -> bytes:
    """As `_request`, for a request that names no partition."""
    message = _message(key, number, named=False)
    parts = encode_request(api, key.version, number, key.client_id, message)
    return b"".join(parts)[FRAME_SIZE_BYTES:]


def _response(api: Api, key: FetchKey, number: int) -> bytes:
    """Encode a response up to its records' length, with `number` in places that may differ."""
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


def _nothing(api: Api, key: FetchKey, number: int) -> bytes:
    message = FetchResponse(session_id=key.session_id)
    return b"".join(encode_response(api, key.version, number, message))
