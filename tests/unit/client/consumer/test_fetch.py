from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.fetch import (
    NEWEST_WITH_NAMES,
    FetchTarget,
    fetch_request,
    newest_version,
    read_response,
)
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EpochEnd
from lakelog.client.view import Partition, Topic
from lakelog.protocol.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from lakelog.records.builder import BatchBuilder

TOPIC = Topic("t", b"i" * 16, (Partition(0, 1), Partition(1, 1)))
NAMED = Topic("n", bytes(16), (Partition(0, 1),))
LIMIT = 1 << 20


def target(offset: int = 0, partition: int = 0, topic: Topic = TOPIC) -> FetchTarget:
    return FetchTarget(topic, partition, offset, 1000, leader_epoch=3)


def batch(base: int, count: int = 3, *, control: bool = False) -> bytes:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(base + index, None, b"%d" % (base + index))
    return bytes(builder.build(base_offset=base, is_control=control))


def answer(records: bytes | None, error: int = 0, *, by_id: bool = True) -> FetchResponse:
    row = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=99,
        log_start_offset=1,
        aborted_transactions=None,
        records=records,
    )
    name = FetchableTopicResponse(topic="t", partitions=[row])
    if by_id:
        name = FetchableTopicResponse(topic_id=TOPIC.topic_id, partitions=[row])
    return FetchResponse(responses=[name])


def test_partitions_are_grouped_by_topic() -> None:
    targets = [target(5, 0), target(6, 1), target(0, 0, NAMED)]
    request = fetch_request(targets, max_wait_ms=7, min_bytes=2, max_bytes=3, read_committed=True)
    assert [(row.topic, len(row.partitions)) for row in request.topics] == [("t", 2), ("n", 1)]
    first = request.topics[0].partitions[0]
    assert (first.fetch_offset, first.partition_max_bytes) == (5, 1000)
    assert first.current_leader_epoch == 3
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.isolation_level == 1


def test_topics_without_ids_need_the_version_with_names() -> None:
    assert newest_version([target()]) is None
    assert newest_version([target(), target(topic=NAMED)]) == NEWEST_WITH_NAMES


@pytest.mark.parametrize("by_id", [False, True])
def test_batches_before_the_offset_and_a_cut_one_are_left_out(by_id: bool) -> None:
    records = batch(0) + batch(3) + batch(6) + batch(9)[:-1]
    (fetched,) = read_response(answer(records, by_id=by_id), [target(4)])
    assert [header.base_offset for header, _ in fetched.batches] == [3, 6]
    assert (fetched.readable_end, fetched.log_start_offset) == (99, 1)


def test_partitions_that_were_not_asked_for_are_dropped() -> None:
    assert read_response(answer(batch(0)), [target(0, 1)]) == []


def test_the_batches_before_a_damaged_one_are_read() -> None:
    damaged = bytearray(batch(3))
    damaged[-1] ^= 1
    (found,) = read_response(answer(batch(0) + bytes(damaged)), [target()])
    assert [header.base_offset for header, _ in found.batches] == [0]
    assert found.next_offset == 3


def test_a_damaged_batch_is_an_error() -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(ClientError, match="damaged") as caught:
        read_response(answer(bytes(damaged)), [target()])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_only_a_part_of_a_batch_is_an_error() -> None:
    with pytest.raises(ClientError) as caught:
        read_response(answer(batch(0)[:-1]), [target()])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("records", [None, b""])
def test_nothing_new_is_no_error(records: bytes | None) -> None:
    (fetched,) = read_response(answer(records), [target()])
    assert (fetched.error, fetched.batches) == (ErrorCode.NONE, [])


def test_errors_of_a_partition_and_of_the_whole() -> None:
    (fetched,) = read_response(answer(None, error=6), [target()])
    assert fetched.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ClientError):
        read_response(FetchResponse(error_code=71), [target()])


def test_a_response_reports_where_the_log_diverged() -> None:
    response = answer(b"")
    response.responses[0].partitions[0].diverging_epoch = DivergingEpoch(epoch=5, end_offset=4)
    [fetched] = read_response(response, [target(9)])
    assert fetched.diverged == EpochEnd(5, 4)
    [fetched] = read_response(answer(b""), [target(9)])
    assert fetched.diverged is None
