from __future__ import annotations

from dataclasses import replace

from lakelog.coordinator.transaction.fences import Fence
from lakelog.coordinator.transaction.state import OpenTransaction, Transaction


def _fence() -> Fence:
    open_ones = [OpenTransaction("orders", index, 7, 3 + index, -1, 0) for index in range(2)]
    return Fence(open_ones)


def test_a_fence_is_pending_until_the_epoch_has_passed_all_hanging_transactions() -> None:
    current = Transaction(producer_id=7, producer_epoch=4, timeout_ms=1, last_update_ms=0)
    assert _fence().is_pending(current)
    assert not _fence().is_pending(replace(current, producer_epoch=5))


def test_no_fence_is_pending_for_another_producer_or_an_expired_id() -> None:
    other = Transaction(producer_id=8, producer_epoch=0, timeout_ms=1, last_update_ms=0)
    assert not _fence().is_pending(other)
    assert not _fence().is_pending(None)


def test_pauses_double_up_to_ten_seconds() -> None:
    fence = _fence()
    pauses = [fence.next_pause_ms() for _ in range(9)]
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
