from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lakelog.client.consumer.fetch import FetchTarget, read_response
from lakelog.client.consumer.positions import Position, checked_partitions, checked_topics
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EpochEnd
from lakelog.client.view import Partition, Topic
from lakelog.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder

TOPIC = Topic("t", b"i" * 16, (Partition(0, 1), Partition(1, 1)))


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
    move = position.move
    position.seek(100)
    assert (position.has_records, position.fetch_offset) == (False, 100)
    assert position.move != move


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


@pytest.mark.parametrize("wrong", ["orders", ["orders"], [("orders", "0")], [("orders",)], [5]])
def test_partitions_are_pairs(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"such as \('orders', 0\), not .*; subscribe\(\)"):
        checked_partitions(wrong)
    assert checked_partitions({("orders", 0): 5}) == [("orders", 0)]


def test_the_number_of_a_partition_may_come_from_a_column() -> None:
    number: Any = np.int64(1)
    assert checked_partitions([("orders", number)]) == [("orders", 1)]


def test_topics_are_a_list_of_names() -> None:
    assert checked_topics(iter(["orders"])) == ["orders"]
    with pytest.raises(TypeError, match=r"must be a list, such as \['orders'\], not str"):
        checked_topics("orders")
    wrong: Any = [("orders", 0)]
    with pytest.raises(TypeError, match="a topic is a name, such as 'orders', not"):
        checked_topics(wrong)
