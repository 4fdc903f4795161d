from __future__ import annotations

import random

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.fetch import (
    NEWEST_WITH_NAMES,
    DamagedHeader,
    FetchTarget,
    fetch_request,
    newest_version,
    read_response,
    with_damaged,
    without_aborted,
)
from lakelog.client.consumer.positions import Position
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EpochEnd
from lakelog.client.view import Partition, Topic
from lakelog.protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from lakelog.records.batch import CorruptRecord, iter_batches
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import EndTransactionMarker, build_marker

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


READ_TOPIC = Topic("t", b"i" * 16, (Partition(0, 1),))


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
    answer = FetchableTopicResponse(topic_id=READ_TOPIC.topic_id, partitions=[row])
    target = FetchTarget(READ_TOPIC, 0, start, LIMIT)
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


def stored_batch(base: int) -> bytearray:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"value")
    return builder.build(base_offset=base)


def response(index: int, at: int, bit: int = 1) -> bytes:
    """Return three batches of three records, one of them with a flipped bit."""
    batches = [stored_batch(base) for base in (0, 3, 6)]
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
        read(bytes(response(0, -1)[: len(stored_batch(0))]), offset=3)
