"""The ISR that a leader wants."""

from __future__ import annotations

import pytest

from lakelog.replica.in_sync import StallGuard, wanted_isr
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from storage_kit import NOW, make_batch, memory_store

LEADER, FOLLOWER = 1, 2
EPOCHS = {LEADER: 1, FOLLOWER: 3}
LAG_MAX_MS = 1000


def led(*isr: int, records: int = 0) -> Partition:
    """Return a partition of two replicas, which broker 1 leads from offset `records` on."""
    store = memory_store()
    store.known.add(b"t" * 16)
    log = store.directory.create_log("t", 0, b"t" * 16, store.config)
    alone = Role(0, LEADER, True, (LEADER,), (FOLLOWER,))
    partition = Partition(log, alone, lambda partition: None)
    for _ in range(records):
        partition.append(make_batch(1), NOW)
    partition.assume(Role(1, LEADER, True, isr, (FOLLOWER,)), 0)
    return partition


def wanted(partition: Partition, now_ms: int, *, may_shrink: bool = True) -> tuple[int, ...]:
    return wanted_isr(partition, LEADER, EPOCHS, now_ms, LAG_MAX_MS, may_shrink=may_shrink)


def test_a_follower_that_stays_behind_leaves() -> None:
    partition = led(LEADER, FOLLOWER, records=3)
    partition.note_fetch(FOLLOWER, 3, 1, 10)
    assert wanted(partition, LAG_MAX_MS) == (LEADER, FOLLOWER)
    assert wanted(partition, LAG_MAX_MS + 1) == (LEADER,)
    assert wanted(partition, LAG_MAX_MS + 1, may_shrink=False) == (LEADER, FOLLOWER)


def test_an_idle_follower_at_the_end_stays() -> None:
    partition = led(LEADER, FOLLOWER, records=3)
    partition.note_fetch(FOLLOWER, 3, 3, 10)
    assert wanted(partition, 100 * LAG_MAX_MS) == (LEADER, FOLLOWER)


@pytest.mark.parametrize(("offset", "joins"), [(2, False), (3, True)])
def test_a_follower_joins_at_the_start_of_the_epoch(offset: int, joins: bool) -> None:
    partition = led(LEADER, records=3)
    assert wanted(partition, 1) == (LEADER,), "it has not fetched"
    partition.note_fetch(FOLLOWER, 3, offset, 10)
    assert (wanted(partition, 20) == (LEADER, FOLLOWER)) is joins


def test_a_follower_joins_with_all_committed_records_only() -> None:
    partition = led(LEADER, records=3)
    partition.append(make_batch(1), NOW)
    partition.note_fetch(FOLLOWER, 3, 3, 10)
    assert wanted(partition, 20) == (LEADER,), "the leader alone has committed offset 3"
    partition.note_fetch(FOLLOWER, 3, 4, 30)
    assert wanted(partition, 40) == (LEADER, FOLLOWER)


@pytest.mark.parametrize("epochs", [{LEADER: 1, FOLLOWER: 4}, {LEADER: 1}])
def test_a_broker_that_restarted_or_is_fenced_does_not_join(epochs: dict[int, int]) -> None:
    partition = led(LEADER, records=3)
    partition.note_fetch(FOLLOWER, 3, 3, 10)
    isr = wanted_isr(partition, LEADER, epochs, 20, LAG_MAX_MS, may_shrink=True)
    assert isr == (LEADER,)


def test_a_proposed_member_counts_at_once() -> None:
    partition = led(LEADER, records=3)
    partition.note_fetch(FOLLOWER, 3, 3, 10)
    partition.propose_isr((LEADER, FOLLOWER))
    partition.append(make_batch(1), NOW)
    committed = [partition.watermark.offset]
    partition.propose_isr(())
    assert [*committed, partition.watermark.offset] == [3, 4]


def test_nothing_shrinks_right_after_a_stall() -> None:
    guard = StallGuard(period_ms=100, lag_max_ms=LAG_MAX_MS)
    turns = [0, 100, 5000, 5100, *range(5200, 6001, 100)]
    found = {now: guard.may_shrink(now) for now in turns}
    assert [now for now in turns if not found[now]] == [5000, 5100, *range(5200, 6000, 100)]
