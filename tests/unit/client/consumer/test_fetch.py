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
from lakelog.client.consumer.positions import Position
from lakelog.client.epochs import EpochEnd
from lakelog.client.errors import ClientError
from lakelog.client.view import Partition, Topic
from lakelog.protocol.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from lakelog.records.batch import patch_offset_and_epoch
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


def fill(position: Position, records: bytes) -> None:
    asked = target(position.fetch_offset)
    (fetched,) = read_response(answer(records), [asked])
    position.add(fetched)


def test_records_are_handed_out_from_the_position_on() -> None:
    position = Position(("t", 0), 4)
    fill(position, batch(3) + batch(6))
    assert position.fetch_offset == 9
    assert [record.offset for record in position.take(3, LIMIT)] == [4, 5, 6]
    assert position.offset == 7
    records = position.take(10, LIMIT)
    assert [(r.topic, r.offset, r.value) for r in records] == [("t", 7, b"7"), ("t", 8, b"8")]
    assert (position.offset, position.has_records) == (9, False)


def test_control_batches_move_the_position_and_are_not_handed_out() -> None:
    position = Position(("t", 0), 0)
    fill(position, batch(0, 1) + batch(1, 1, control=True))
    assert [record.offset for record in position.take(10, LIMIT)] == [0]
    assert position.offset == 2


def test_a_seek_drops_fetched_records() -> None:
    position = Position(("t", 0), 0)
    fill(position, batch(0))
    turn = position.turn
    position.seek(100)
    assert (position.has_records, position.fetch_offset) == (False, 100)
    assert position.turn != turn


def test_a_batch_that_cannot_be_decoded_stays_the_next_one() -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"x" * 100)
    position = Position(("t", 0), 0)
    fill(position, bytes(builder.build()))
    for _ in range(2):
        with pytest.raises(ClientError, match=r"offsets 0 to 0.*next batch begins at 1"):
            position.take(1, 50)
    assert position.take(1, LIMIT)[0].offset == 0


def test_records_before_a_batch_that_cannot_be_decoded_are_delivered_first() -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"x" * 100)
    damaged = builder.build()
    patch_offset_and_epoch(damaged, 0, 3, 0)
    position = Position(("t", 0), 0)
    fill(position, batch(0) + bytes(damaged))
    assert [record.offset for record in position.take(10, 50)] == [0, 1, 2]
    assert position.offset == 3
    with pytest.raises(ClientError, match="offsets 3 to 3"):
        position.take(10, 50)


def test_a_position_has_the_epoch_of_the_last_delivered_record() -> None:
    position = Position(("t", 0), 0)
    for base, epoch in ((0, 5), (3, 7)):
        data = bytearray(batch(base))
        patch_offset_and_epoch(data, 0, base, epoch)
        [fetched] = read_response(answer(bytes(data)), [target(base)])
        position.add(fetched)
    assert (position.epoch, position.fetch_offset, position.fetch_epoch) == (-1, 6, 7)
    assert len(position.take(2, LIMIT)) == 2
    assert (position.offset, position.epoch) == (2, 5)
    assert len(position.take(9, LIMIT)) == 4
    assert (position.offset, position.epoch) == (6, 7)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (EpochEnd(7, 9), (True, 6, 7)),
        (EpochEnd(6, 6), (True, 6, 6)),
        (EpochEnd(6, 4), (True, 2, 5)),
        (EpochEnd(5, 1), (False, 6, 7)),
        (EpochEnd(-1, -1), (False, 6, 7)),
    ],
    ids=[
        "whole",
        "of an older epoch",
        "truncated behind the position",
        "truncated before it",
        "another log",
    ],
)
def test_fetched_records_that_the_log_no_longer_has_are_dropped(
    end: EpochEnd, expected: tuple[bool, int, int]
) -> None:
    """Of a position that has handed out [0, 2) of [0, 6)."""
    position = Position(("t", 0), 0)
    for base, epoch in ((0, 5), (3, 7)):
        data = bytearray(batch(base))
        patch_offset_and_epoch(data, 0, base, epoch)
        position.add(read_response(answer(bytes(data)), [target(base)])[0])
    position.take(2, LIMIT)
    agrees = position.reconcile(end)
    assert (agrees, position.fetch_offset, position.fetch_epoch) == expected


def test_a_response_reports_where_the_log_diverged() -> None:
    response = answer(b"")
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=5, end_offset=4)
    [fetched] = read_response(response, [target(9)])
    assert fetched.diverged == EpochEnd(5, 4)
    [fetched] = read_response(answer(b""), [target(9)])
    assert fetched.diverged is None
