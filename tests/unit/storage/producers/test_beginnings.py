"""Where producers that a log does not know may begin, while their first batches are awaited."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.storage.producers.beginnings import (
    AWAITED_MS,
    Beginnings,
    Verification,
    Verifications,
    VerificationVoidedError,
)
from lakelog.storage.validation import Origin
from storage_kit import NOW, ManualClock

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


ID = 7


def started(sequence: int = 3, epoch: int = 0, *, bumps: bool = False) -> Verifications:
    verifications = Verifications()
    verifications.start(ID, epoch, sequence, NOW, supports_epoch_bump=bumps)
    return verifications


def test_batches_that_wait_together_share_a_verification() -> None:
    verifications = started()
    first = verifications.held[ID]
    assert verifications.start(ID, 0, 1, NOW, supports_epoch_bump=False) is first
    assert first.lowest_sequence == 1
    verifications.start(ID, 1, 5, NOW, supports_epoch_bump=False)
    assert (first.epoch, first.lowest_sequence) == (1, 5)


def check(
    verifications: Verifications,
    sequence: int,
    verification: Verification | None,
    origin: Origin = "client",
    *,
    begins: bool = True,
    is_known: bool = True,
) -> None:
    verifications.check(ID, sequence, verification, origin, begins=begins, is_known=is_known)


def test_only_the_present_verification_is_valid() -> None:
    verifications = started()
    present = verifications.held[ID]
    check(verifications, 0, present)
    check(verifications, 0, None, "coordinator")
    check(verifications, 0, None, begins=False)
    with pytest.raises(KafkaError) as raised:
        check(verifications, 0, None)
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE
    with pytest.raises(VerificationVoidedError):
        check(verifications, 0, Verification(0, 3, NOW, False))
    del verifications.held[ID]
    those: list[tuple[Origin, Verification | None]] = [("client", present), ("coordinator", None)]
    for origin, other in those:
        with pytest.raises(VerificationVoidedError) as voided:
            check(verifications, 0, other, origin)
        assert voided.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_verification_is_void_below_an_epoch() -> None:
    verifications = started(epoch=3)
    verifications.void_below(ID, 3)
    verifications.void_below(ID + 1, 9)
    assert len(verifications) == 1
    verifications.void_below(ID, 4)
    assert len(verifications) == 0


@pytest.mark.parametrize(("bumps", "is_known", "lowest"), [(False, False, 3), (True, True, 3)])
def test_the_lowest_sequence_comes_first(bumps: bool, is_known: bool, lowest: int) -> None:
    verifications = started(bumps=bumps)
    check(verifications, lowest, verifications.held[ID], is_known=is_known)
    check(verifications, lowest + 1, None, "coordinator", is_known=is_known)
    with pytest.raises(KafkaError) as raised:
        check(verifications, lowest + 1, None, begins=False, is_known=is_known)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_of_version_2_begins_at_sequence_0() -> None:
    verifications = started(bumps=True)
    with pytest.raises(KafkaError, match="0 must come first"):
        check(verifications, 1, verifications.held[ID], is_known=False)


def test_a_verification_without_a_batch_expires() -> None:
    verifications = started()
    verifications.remove_older(NOW - 1)
    assert len(verifications) == 1
    verifications.remove_older(NOW)
    assert len(verifications) == 0
