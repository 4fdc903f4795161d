from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import EPOCH_MAX, SEQUENCE_END, PartitionQueue, ProducerBatch
from lakelog.client.producer.results import Verdict
from lakelog.records.batch import read_header

DELIVERY_S = 100.0


LINGER_S = 0.5


def accumulator(**changes: object) -> Accumulator:
    values: dict[str, object] = {
        "codec": 0,
        "linger_s": LINGER_S,
        "delivery_timeout_s": DELIVERY_S,
        "max_in_flight": 5,
        "is_idempotent": True,
    }
    return Accumulator(Settings(**{**values, **changes}))  # type: ignore[arg-type]


def queue_of(acc: Accumulator, partition: int = 0) -> PartitionQueue:
    queue = acc.queue("t", partition)
    queue.producer_id, queue.producer_epoch = 7, 0
    return queue


def add(acc: Accumulator, queue: PartitionQueue, now: float = 0.0, count: int = 1) -> ProducerBatch:
    """A closed batch of `count` records."""
    batch = acc.open(queue, now)
    for _ in range(count):
        batch.builder.append(1, None, b"v")
    acc.close(queue)
    return batch


def test_sequences_count_records_and_wrap() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    queue.next_sequence = SEQUENCE_END - 2
    for count in (3, 4, 1):
        add(acc, queue, count=count)
    taken = [acc.take(queue) for _ in range(3)]
    assert [batch.sequence for batch in taken] == [SEQUENCE_END - 2, 1, 5]
    header = read_header(taken[0].encode())
    assert (header.producer_id, header.producer_epoch) == (7, 0)
    assert (header.base_sequence, header.last_sequence) == (SEQUENCE_END - 2, 0)


def test_retries_keep_sequence_bytes_and_order() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    first, second, third = (add(acc, queue) for _ in range(3))
    for batch in (first, second, third):
        assert acc.take(queue) is batch
    raw = bytes(first.encode())
    lost = ErrorCode.NETWORK_EXCEPTION
    for batch in (second, first, third):
        assert acc.answer(batch, lost, 1.0) is Verdict.RETRY
    assert acc.ready(1.0) == []
    wait = acc.wait_s(1.0)
    assert wait is not None
    assert acc.ready(1.0 + wait) == [queue]
    assert [acc.take(queue) for _ in range(3)] == [first, second, third]
    assert bytes(first.encode()) == raw
    assert [batch.sequence for batch in (first, second, third)] == [0, 1, 2]


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    queue.producer_epoch = EPOCH_MAX
    add(acc, queue)
    acc.answer(acc.take(queue), ErrorCode.UNKNOWN_PRODUCER_ID, 0.0)
    acc.ready(50.0)
    assert queue.producer_epoch > EPOCH_MAX


def test_a_returned_batch_goes_before_the_batches_after_it() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    batches = [add(acc, queue) for _ in range(4)]
    for _ in range(3):
        acc.take(queue)
    queue.put_back(batches[1])
    queue.put_back(batches[0])
    assert list(queue.waiting) == [batches[0], batches[1], batches[3]]
    assert queue.is_first(batches[0])
    assert not queue.is_first(batches[2])


def test_a_transaction_begins_only_without_batches() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    queue.next_sequence = 9
    queue.begin_transaction(7, 3)
    assert (queue.producer_epoch, queue.next_sequence) == (3, 0)
    add(acc, queue)
    with pytest.raises(AssertionError):
        queue.begin_transaction(7, 4)


def test_a_postponed_batch_keeps_the_first_reason_of_its_delay() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    batch = add(acc, queue)
    queue.postpone(1.0, "no leader")
    queue.postpone(2.0, "the connection broke")
    assert (queue.not_before_s, batch.last_error) == (2.0, "no leader")
