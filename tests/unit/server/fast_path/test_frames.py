"""Templates of cached requests and responses have the bytes that the codec would write."""

from __future__ import annotations

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.replica.fetch_session import TOPIC_IDS_SINCE, FetchTarget, topic_fields
from lakelog.replica.partition import Partition
from lakelog.server.fast_path.frames import FetchFrames, FetchKey, ProduceFrames
from lakelog.wire.framing import encode_request, encode_response
from storage_kit import NOW, make_batch, memory_store, sole_leader

MARK = b"\xabBATCH"


def frame(number: int, batch: bytes, *, version: int, client: str = "c", acks: int = 1) -> bytes:
    entries = [PartitionProduceData(index=0, records=batch)]
    topics = [TopicProduceData(name="orders", partition_data=entries)]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return b"".join(encode_request(api_for(ProduceRequest), version, number, client, request))


def frames(version: int) -> ProduceFrames:
    """Learn from a request, as a connection does."""
    whole = frame(0, MARK, version=version)[4:]
    at = whole.index(MARK)
    width = 1 if version >= 9 else 4
    return ProduceFrames(whole[: at - width], whole[at + len(MARK) :])


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 100_000])
def test_equal_requests_are_found_whatever_their_batches(version: int, size: int) -> None:
    sent = [bytes([number]) * size for number in range(3)]
    data = b"".join(frame(number, batch, version=version) for number, batch in enumerate(sent))
    end = 4 + int.from_bytes(data[:4], "big")
    numbers, batches, ends = frames(version).find(memoryview(data), 4, end, 10)
    assert numbers == [0, 1, 2]
    assert [bytes(batch) for batch in batches] == sent
    assert ends[-1] == len(data)


@pytest.mark.parametrize("version", [8, 12])
def test_at_most_so_many_are_found_and_an_incomplete_one_is_not(version: int) -> None:
    data = b"".join(frame(number, b"x" * 99, version=version) for number in range(3))
    size = len(data) // 3
    assert frames(version).find(memoryview(data), 4, size, 2)[0] == [0, 1]
    assert frames(version).find(memoryview(data)[:-1], 4, size, 9)[0] == [0, 1]


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("change", [{"client": "d"}, {"acks": 0}])
def test_another_request_is_not_found(version: int, change: dict[str, object]) -> None:
    fields: dict[str, object] = {"version": version, **change}
    data = frame(1, b"x" * 99, **fields)  # type: ignore[arg-type]
    assert frames(version).find(memoryview(data), 4, len(data), 9)[0] == []


_API = api_for(FetchRequest)
_FLEXIBLE_TAIL = bytes(3)
_VERSIONS = range(10, _API.versions.highest + 1)


def _key(version: int, *, session_id: int = 5, committed: bool = False) -> FetchKey:
    topic = b"\x07" * 16 if version >= TOPIC_IDS_SINCE else "orders"
    numbers = (500, 1, 1 << 20, int(committed), session_id)
    return FetchKey("a client", version, *numbers, topic, 3, -1, -1, -1, 1 << 16, "")


def _frames(key: FetchKey) -> FetchFrames:
    return FetchFrames(_API, key, _FLEXIBLE_TAIL if key.version >= _API.flexible_from else b"")


@pytest.fixture
def partition() -> Partition:
    """A partition that ends at 7."""
    made = Partition(memory_store().create(), sole_leader(0), lambda partition: None)
    made.append(make_batch(7), NOW)
    return made


def _target(key: FetchKey) -> FetchTarget:
    return FetchTarget(key.topic, key.partition, 0, key.partition_max_bytes, -1, -1)


def _encoded(key: FetchKey, partition: Partition, records: bytes) -> bytes:
    """Return a response with the correlation id 9, as the codec encodes it."""
    data = PartitionData(
        partition_index=key.partition,
        high_watermark=partition.watermark.offset,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=[] if key.isolation_level else None,
        records=records,
    )
    name, topic_id = topic_fields(key.topic)
    topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[data])
    response = FetchResponse(session_id=key.session_id, responses=[topic])
    return b"".join(encode_response(_API, key.version, 9, response))


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
def test_a_response_is_that_of_the_codec(
    version: int, committed: bool, partition: Partition
) -> None:
    key = _key(version, committed=committed)
    frames = _frames(key)
    # The length of records is a varint of another size at 127 and 16,383 bytes.
    for size in (1, 126, 127, 126, 16_382, 16_383, 16_383):
        head = frames.head(9, partition, _target(key), size)
        records = bytes(size)
        assert head + records + frames.tail == _encoded(key, partition, records)


@pytest.mark.parametrize("version", _VERSIONS)
def test_the_numbers_of_a_request_are_found(version: int) -> None:
    frames = _frames(_key(version))
    message = frames.message
    message.session_epoch, message.topics[0].partitions[0].fetch_offset = 4, 1 << 40
    frame = b"".join(encode_request(_API, version, 9, "a client", message))[4:]
    assert frames.request.unpack(frame, 0) == (9, 4, 1 << 40)
    message.topics = []
    frame = b"".join(encode_request(_API, version, 9, "a client", message))[4:]
    assert frames.unchanged is not None
    assert frames.unchanged.unpack(frame, 0) == (9, 4)


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "isolation_level", "session_id"])
def test_a_request_with_another_field_is_decoded(field: str) -> None:
    """A template that ignored it would answer with the limits of the earlier request."""
    frames = _frames(_key(12))
    setattr(frames.message, field, getattr(frames.message, field) ^ 1)
    frame = b"".join(encode_request(_API, 12, 9, "a client", frames.message))[4:]
    assert frames.request.unpack(frame, 0) is None


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_session_without_changes_has_an_empty_response(version: int) -> None:
    empty = FetchResponse(session_id=5)
    assert _frames(_key(version)).nothing(9) == b"".join(encode_response(_API, version, 9, empty))


def test_without_a_session_each_request_names_its_partition() -> None:
    assert _frames(_key(12, session_id=0)).unchanged is None


def test_sent_offsets_are_noted_for_the_session(partition: Partition) -> None:
    """Otherwise the next response of the session repeats a partition without changes."""
    key = _key(12)
    target = _target(key)
    _frames(key).head(9, partition, target, 1)
    assert (target.sent_high_watermark, target.sent_log_start_offset) == (7, 0)
