"""Where producers that a log does not know may begin, while their first batches are awaited."""

from __future__ import annotations

import pytest

from lakelog.storage.producers.beginnings import AWAITED_MS, Beginnings
from storage_kit import ManualClock

ONE, TWO = 7, 8


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def beginnings(clock: ManualClock) -> Beginnings:
    return Beginnings(clock.monotonic_ms)


def test_a_producer_may_begin_anywhere(beginnings: Beginnings) -> None:
    assert beginnings.may_begin(ONE, 0, 500)


def test_the_producers_of_a_new_leader_begin_at_zero_for_a_minute(
    beginnings: Beginnings, clock: ManualClock
) -> None:
    beginnings.await_rejected(ONE, 0, 5)
    beginnings.await_all()
    clock.now_ms += AWAITED_MS - 1
    assert not beginnings.may_begin(ONE, 0, 5)
    clock.now_ms += 1
    assert beginnings.may_begin(ONE, 0, 5)


def test_a_rejected_producer_repeats_its_first_rejected_batch(beginnings: Beginnings) -> None:
    for sequence in (5, 3, 8):
        beginnings.await_rejected(ONE, 0, sequence)
    assert not beginnings.may_begin(ONE, 0, 5)
    assert beginnings.may_begin(TWO, 0, 5), "no batch of this one was rejected"
    assert beginnings.may_begin(ONE, 0, 3)
    assert beginnings.may_begin(ONE, 0, 5), "it may have been forgotten since"


def test_a_rejection_counts_for_a_minute_and_delays_no_other_producer(
    beginnings: Beginnings, clock: ManualClock
) -> None:
    beginnings.await_rejected(ONE, 0, 3)
    for _ in range(4):
        clock.now_ms += AWAITED_MS // 2
        beginnings.await_rejected(TWO, 0, 3)
    assert beginnings.may_begin(ONE, 0, 4)
    assert not beginnings.may_begin(TWO, 0, 4)
    clock.now_ms += AWAITED_MS
    beginnings.await_rejected(TWO, 0, 9)
    assert beginnings.may_begin(TWO, 0, 9), "the earlier batch is awaited no more"


def test_a_new_epoch_awaits_nothing_of_the_last_one(beginnings: Beginnings) -> None:
    beginnings.await_rejected(ONE, 0, 3)
    assert beginnings.may_begin(ONE, 1, 4)


def test_the_newest_rejections_are_kept(beginnings: Beginnings) -> None:
    for producer_id in range(101):
        beginnings.await_rejected(producer_id, 0, 3)
    assert beginnings.may_begin(0, 0, 4)
    assert not beginnings.may_begin(1, 0, 4)
