from __future__ import annotations

import threading

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import PartitionQueue, ProducerBatch
from lakelog.client.producer.results import BatchResult, Delivery, Verdict, judge, maybe_written

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


def test_a_delivery_counts_from_its_batch() -> None:
    acc = accumulator()
    batch = add(acc, queue := queue_of(acc), count=2)
    delivery = Delivery(batch.result, 1, 77)
    with pytest.raises(TimeoutError):
        delivery.result(0)
    acc.answer(acc.take(queue), ErrorCode.NONE, 0.0, base_offset=40)
    assert delivery.done
    assert delivery.result() == ("t", 0, 41, 77)


def test_an_error_is_raised_for_each_record_of_the_batch_and_noticed() -> None:
    result = BatchResult("t", 0)
    error = NotWrittenError(ErrorCode.INVALID_RECORD, "a record breaks a rule of the topic")
    result.fail(error)
    assert not result.is_noticed
    for delta in range(2):
        with pytest.raises(NotWrittenError) as raised:
            Delivery(result, delta, 5).result()
        assert raised.value is error
    assert result.is_noticed


@pytest.mark.parametrize(
    ("base", "append_time", "expected"),
    [(40, -1, (41, 77)), (40, 99, (41, 99)), (-1, -1, (-1, 77))],
)
def test_offset_and_time_are_known_as_far_as_the_broker_said(
    base: int, append_time: int, expected: tuple[int, int]
) -> None:
    """With acks=0, and for some duplicates, the offset is unknown."""
    result = BatchResult("t", 0)
    result.succeed(base, append_time)
    position = Delivery(result, 1, 77).result()
    assert (position.offset, position.timestamp) == expected


def test_a_caller_in_another_thread_is_woken() -> None:
    result = BatchResult("t", 0)
    waiter = threading.Thread(target=lambda: result.wait(60))
    waiter.start()
    result.succeed(1, -1)
    waiter.join(60)
    assert not waiter.is_alive()


def test_callbacks_run_once_before_or_after_the_result() -> None:
    called: list[str] = []
    result = BatchResult("t", 0)
    result.when_done(lambda: called.append("before"))
    assert called == []
    result.succeed(0, -1)
    result.when_done(lambda: called.append("after"))
    assert called == ["before", "after"]


def test_every_code_has_a_verdict() -> None:
    for code in ErrorCode:
        for is_first in (False, True):
            verdict = judge(code, is_first=is_first)
            assert not (verdict is Verdict.DONE and maybe_written(code))


@pytest.mark.parametrize(
    ("code", "is_first", "verdict"),
    [
        (ErrorCode.NONE, True, Verdict.DONE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, True, Verdict.DONE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, Verdict.RENUMBER),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, Verdict.RETRY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, Verdict.RETRY),
        (ErrorCode.MESSAGE_TOO_LARGE, True, Verdict.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True, Verdict.FATAL),
        (ErrorCode.PRODUCER_FENCED, False, Verdict.FATAL),
    ],
)
def test_the_next_step_after_an_error(code: ErrorCode, is_first: bool, verdict: Verdict) -> None:
    assert judge(code, is_first=is_first) is verdict


@pytest.mark.parametrize(
    ("code", "maybe"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.CORRUPT_MESSAGE, False),
    ],
)
def test_a_record_that_may_be_stored_is_never_reported_as_not_written(
    code: ErrorCode, maybe: bool
) -> None:
    assert maybe_written(code) is maybe
