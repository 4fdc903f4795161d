"""Produce requests as bytes, of which only correlation id and batch differ, and Fetch requests and
responses of one partition as templates with a few numbers.
"""

from __future__ import annotations

from struct import Struct, calcsize
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

_FRAME_SIZE = Struct(">i")
_NUMBER_AT = 4
"""Position of the correlation id: after the API's key and version."""
_NUMBER_SIZE = 4

Found = tuple[list[int], list[memoryview], list[int]]
"""Correlation ids, batches, and the exclusive ends of the requests."""


class ProduceFrames:
    """Requests that are alike.

    Args:
        head: the encoding from the API's key up to the length of the records.
        tail: follows the records; if it is empty, their length is an int32.
    """

    __slots__ = ("_after", "_before", "_fixed", "_measure", "_size", "_tail", "_unpack")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._before = head[:_NUMBER_AT]
        self._after = head[_NUMBER_AT + _NUMBER_SIZE :]
        self._measure = _measure_compact if tail else _measure_plain
        layout = "3s" if tail else "4s"
        struct = Struct(f">{_NUMBER_AT}si{len(self._after)}s{layout}")
        self._fixed = struct.size - calcsize(layout)
        self._size = struct.size
        self._unpack = struct.unpack_from
        self._tail = tail

    def find(self, view: memoryview, start: int, end: int, most: int) -> Found:
        """Find the request in `view[start:end]` and the equal ones behind it, `most` in all.

        Only complete requests are returned; empty lists if the first one differs.
        """
        numbers: list[int] = []
        batches: list[memoryview] = []
        ends: list[int] = []
        unpack, before, after, tail = self._unpack, self._before, self._after, self._tail
        measure, fixed, received = self._measure, self._fixed, len(view)
        while end - start >= self._size:
            first, number, second, length = unpack(view, start)
            stop = end - len(tail)
            # The length must fill the frame exactly: otherwise the request has other fields, and
            # only the decoder may judge it.
            size = measure(length, stop - start - fixed)
            if first != before or second != after or size < 0 or view[stop:end] != tail:
                break
            numbers.append(number)
            batches.append(view[stop - size : stop])
            ends.append(end)
            start = end + FRAME_SIZE_BYTES
            if start > received or len(ends) == most:
                break
            end = start + _FRAME_SIZE.unpack_from(view, end)[0]
            if end > received:
                break
        return numbers, batches, ends


def _measure_compact(length: bytes, capacity: int) -> int:
    """Return the bytes of the records whose compact length begins with these three bytes.

    -1 unless length and records fill the space together. Also -1 for 2 MiB and more, whose length
    has four bytes: they gain nothing here.
    """
    low, middle, high = length
    if low < 128:
        size, width = low - 1, 1
    elif middle < 128:
        size, width = (low & 127 | middle << 7) - 1, 2
    else:
        size, width = (low & 127 | (middle & 127) << 7 | high << 14) - 1, 3
        if high > 127:
            return -1
    return size if size + width == capacity else -1


def _measure_plain(length: bytes, capacity: int) -> int:
    size = int.from_bytes(length, "big", signed=True)
    return size if size + len(length) == capacity else -1


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
            zeros, ones = (_request(api, key, number, named=False) for number in (0, -1))
            self.unchanged = Template(zeros, ones, "ii")
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


def _request(api: Api, key: FetchKey, number: int, *, named: bool = True) -> bytes:
    """Encode a request from the API's key on, with `number` in every place that may differ.

    named: whether it names its partition.
    """
    message = _message(key, number, named=named)
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
