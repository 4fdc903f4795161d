"""Records that a reader of committed records skips; damaged batches that a reader passes."""

from __future__ import annotations

import random

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.batches import DamagedHeader, with_damaged, without_aborted
from lakelog.client.consumer.fetch import FetchTarget, read_response
from lakelog.client.consumer.positions import Position
from lakelog.client.errors import ClientError
from lakelog.client.view import Partition, Topic
from lakelog.protocol.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from lakelog.records.batch import CorruptRecord, iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import EndTransactionMarker, build_marker

TOPIC = Topic("t", b"i" * 16, (Partition(0, 1),))
LIMIT = 1 << 20


def data(base: int, producer: int = -1, count: int = 1, *, transactional: bool = True) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(0, None, b"%d" % (base + number))
    is_transactional = transactional and producer >= 0
    built = builder.build(producer, 0, base_offset=base, is_transactional=is_transactional)
    return bytes(built)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    batch = build_marker(producer, 0, EndTransactionMarker(commit, 0), 0)
    batch[:8] = base.to_bytes(8, "big")
    return bytes(batch)


def values(log: bytes, aborted: list[tuple[int, int]], start: int = 0) -> tuple[list[int], int]:
    """The offsets that a position hands out of one answer, and where it stands then."""
    position = Position(("t", 0), start)
    rows = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    row = PartitionData(
        high_watermark=99, last_stable_offset=50, aborted_transactions=rows, records=log
    )
    answer = FetchableTopicResponse(topic_id=TOPIC.topic_id, partitions=[row])
    target = FetchTarget(TOPIC, 0, start, LIMIT)
    (fetched,) = read_response(FetchResponse(responses=[answer]), [target])
    assert fetched.readable_end == 50
    position.add(fetched)
    offsets = [record.offset for record in position.take(1000, LIMIT)]
    assert position.offset is not None
    return offsets, position.offset


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    log = data(0, 7) + data(1, 8) + data(2, 7) + marker(3, 7, commit=False) + data(4, 7) + data(5)
    assert values(log, [(7, 0)]) == ([1, 4, 5], 6)


def test_only_transactional_batches_of_a_producer_are_left_out() -> None:
    log = data(0, 7) + marker(1, 7, commit=False) + data(2, 7, transactional=False)
    assert values(log, [(7, 0)]) == ([2], 3)
    assert values(data(0, 7, transactional=False) + data(1, 7), [(7, 1)]) == ([0], 2)


def test_an_answer_of_nothing_but_aborted_records_moves_the_position() -> None:
    assert values(data(0, 7) + data(1, 7, count=4), [(7, 0)]) == ([], 5)


def test_a_transaction_that_began_before_the_answer_is_known_by_its_first_offset() -> None:
    log = data(20, 7) + marker(21, 7, commit=False) + data(22, 7)
    assert values(log, [(7, 3)], start=20) == ([22], 23)


def test_the_producers_next_aborted_transaction_is_another_one() -> None:
    log = data(0, 7) + marker(1, 7, commit=False) + data(2, 7) + marker(3, 7, commit=True)
    log += data(4, 7) + marker(5, 7, commit=False)
    assert values(log, [(7, 4), (7, 0)]) == ([2], 6)


def test_a_marker_that_cannot_be_read_is_an_error() -> None:
    builder = BatchBuilder()
    builder.append(0, b"\0", None)
    broken = bytes(builder.build(7, 0, base_offset=1, is_transactional=True, is_control=True))
    with pytest.raises(ClientError) as caught:
        values(data(0, 7) + broken, [(7, 0)])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("seed", range(20))
def test_random_logs_agree_with_the_outcome_of_each_transaction(seed: int) -> None:
    """For any first and last batch of the response."""
    rng = random.Random(seed)
    batches: list[tuple[int, bytes]] = []
    aborted: list[tuple[int, int, int]] = []
    open_since: dict[int, int] = {}
    written: dict[int, list[int]] = {}
    visible: set[int] = set()
    offset = 0
    for _ in range(60):
        producer = rng.choice((-1, 1, 2, 3))
        if producer in open_since and rng.random() < 0.4:
            commit = rng.random() < 0.5
            batches.append((offset, marker(offset, producer, commit=commit)))
            if commit:
                visible.update(written[producer])
            else:
                aborted.append((producer, open_since[producer], offset))
            del open_since[producer]
            offset += 1
            continue
        count = rng.randint(1, 3)
        batches.append((offset, data(offset, producer, count)))
        if producer < 0:
            visible.update(range(offset, offset + count))
        else:
            if producer not in open_since:
                open_since[producer] = offset
                written[producer] = []
            written[producer] += range(offset, offset + count)
        offset += count
    stable = min(open_since.values(), default=offset)
    readable = [index for index, (base, _) in enumerate(batches) if base < stable]
    for begin in readable[::7]:
        end = rng.randint(begin, readable[-1])
        start = batches[begin][0]
        last = batches[end + 1][0] if end + 1 < len(batches) else offset
        log = b"".join(batch for _, batch in batches[begin : end + 1])
        rows = [(who, first) for who, first, stop in aborted if stop >= start and first < last]
        rng.shuffle(rows)
        expected = sorted(each for each in visible if start <= each < last)
        assert values(log, rows, start) == (expected, last)


def test_without_aborted_transactions_nothing_is_looked_into() -> None:
    batches = list(iter_batches(memoryview(data(0, 7) + marker(1, 7, commit=False))))
    assert without_aborted(batches, ()) == batches


END = 9
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, DELTA_AT, COUNT_AT = 8, 16, 21, 23, 57


def batch(base: int) -> bytearray:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"value")
    return builder.build(base_offset=base)


def response(index: int, at: int, bit: int = 1) -> bytes:
    """Return three batches of three records, one of them with a flipped bit."""
    batches = [batch(base) for base in (0, 3, 6)]
    batches[index][at] ^= bit
    return b"".join(batches)


def read(data: bytes, offset: int = 0, end: int = END) -> list[tuple[int, int, bool]]:
    records = memoryview(data)
    kept = with_damaged(list(iter_batches(records)), records, offset, end)
    return [
        (header.base_offset, header.last_offset, isinstance(header, DamagedHeader))
        for header, _ in kept
    ]


@pytest.mark.parametrize("at", [MAGIC_AT, ATTRIBUTES_AT + 1, COUNT_AT + 3, -1])
@pytest.mark.parametrize("index", [0, 1])
def test_a_batch_before_another_one_ends_where_that_begins(index: int, at: int) -> None:
    found = read(response(index, at))
    assert found == [(base, base + 2, base == index * 3) for base in (0, 3, 6)]


def test_the_last_batch_must_have_as_many_records_as_offsets() -> None:
    assert read(response(2, -1))[-1] == (6, 8, True)
    with pytest.raises(CorruptRecord, match="offset 6 is damaged, and so is its header"):
        read(response(2, COUNT_AT + 3))


def test_a_damaged_marker_is_no_marker() -> None:
    records = memoryview(response(0, ATTRIBUTES_AT + 1, 0x30))
    ((header, _), *_) = with_damaged(list(iter_batches(records)), records, 0, END)
    assert (header.is_control, header.is_transactional) == (False, False)
    assert header.attributes == 0x30


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("bit", [1, 2, 0x40])
def test_a_wrong_last_offset_is_an_error(index: int, bit: int) -> None:
    with pytest.raises(CorruptRecord, match="is damaged, and so is its header"):
        read(response(index, DELTA_AT + 3, bit))


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("bit", [1, 2, 4, 8, 16])
def test_a_wrong_length_is_an_error(index: int, bit: int) -> None:
    with pytest.raises(CorruptRecord):
        read(response(index, LENGTH_AT + 3, bit))


def test_a_batch_outside_of_the_readable_log_is_an_error() -> None:
    with pytest.raises(CorruptRecord):
        read(response(2, -1), end=8)
    with pytest.raises(CorruptRecord):
        read(bytes(response(0, -1)[: len(batch(0))]), offset=3)
