"""Where producers that a log does not know may begin, while their first batches are awaited."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.storage.producers.beginnings import AWAITED_MS, Beginnings
from storage_kit import ManualClock

ONE, TWO = 7, 8
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def beginnings(clock: ManualClock) -> Beginnings:
    return Beginnings(clock.monotonic_ms)


def test_a_producer_may_begin_anywhere(beginnings: Beginnings) -> None:
    assert beginnings.refusal(ONE, 0, 500) is None


def test_the_producers_of_a_new_leader_begin_at_zero_for_a_minute(
    beginnings: Beginnings, clock: ManualClock
) -> None:
    beginnings.await_rejected(ONE, 0, 5, STORAGE)
    beginnings.await_all()
    clock.now_ms += AWAITED_MS - 1
    assert beginnings.refusal(ONE, 0, 5) is ErrorCode.LEADER_NOT_AVAILABLE
    clock.now_ms += 1
    assert beginnings.refusal(ONE, 0, 5) is None


def test_a_rejected_producer_repeats_its_first_rejected_batch(beginnings: Beginnings) -> None:
    for sequence in (5, 3, 8):
        beginnings.await_rejected(ONE, 0, sequence, STORAGE)
    assert beginnings.refusal(ONE, 0, 5) is STORAGE
    assert beginnings.refusal(TWO, 0, 5) is None, "no batch of this one was rejected"
    assert beginnings.refusal(ONE, 0, 3) is None
    assert beginnings.refusal(ONE, 0, 5) is None, "it may have been forgotten since"


def test_a_rejection_counts_for_a_minute_and_delays_no_other_producer(
    beginnings: Beginnings, clock: ManualClock
) -> None:
    beginnings.await_rejected(ONE, 0, 3, STORAGE)
    for _ in range(4):
        clock.now_ms += AWAITED_MS // 2
        beginnings.await_rejected(TWO, 0, 3, STORAGE)
    assert beginnings.refusal(ONE, 0, 4) is None
    assert beginnings.refusal(TWO, 0, 4) is STORAGE
    clock.now_ms += AWAITED_MS
    beginnings.await_rejected(TWO, 0, 9, STORAGE)
    assert beginnings.refusal(TWO, 0, 9) is None, "the earlier batch is awaited no more"


def test_a_new_epoch_awaits_nothing_of_the_last_one(beginnings: Beginnings) -> None:
    beginnings.await_rejected(ONE, 0, 3, STORAGE)
    assert beginnings.refusal(ONE, 1, 4) is None


def test_the_newest_rejections_are_kept(beginnings: Beginnings) -> None:
    for producer_id in range(101):
        beginnings.await_rejected(producer_id, 0, 3, STORAGE)
    assert beginnings.refusal(0, 0, 4) is None
    assert beginnings.refusal(1, 0, 4) is STORAGE
