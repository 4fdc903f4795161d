"""The ISR that a leader wants."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lakelog.replica.desired_isr import StallGuard, wanted_isr
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from storage_kit import NOW, create_log, make_batch, memory_store

LEADER, FOLLOWER, OTHER = 1, 2, 3
EPOCHS = {LEADER: 1, FOLLOWER: 3}
LAG_MAX_MS = 1000


def led(*isr: int, records: int = 0, followers: tuple[int, ...] = (FOLLOWER,)) -> Partition:
    """Return a partition that broker 1 leads from offset `records` on."""
    store = memory_store()
    store.known.add(b"t" * 16)
    log = create_log(store.directory, "t", 0, b"t" * 16, store.config)
    alone = Role(0, LEADER, True, (LEADER,), followers)
    partition = Partition(log, alone, lambda partition: None)
    for _ in range(records):
        partition.append(make_batch(1), NOW)
    partition.assume(Role(1, LEADER, True, isr, followers), 0)
    return partition


def wanted(partition: Partition, now_ms: int, lag_ms: int = LAG_MAX_MS) -> tuple[int, ...]:
    return wanted_isr(partition, LEADER, EPOCHS, now_ms, lag_ms)


def test_a_follower_that_stays_behind_leaves() -> None:
    partition = led(LEADER, FOLLOWER, records=3)
    partition.note_fetch(FOLLOWER, 3, 1, 10)
    assert wanted(partition, LAG_MAX_MS) == (LEADER, FOLLOWER)
    assert wanted(partition, LAG_MAX_MS + 1) == (LEADER,)
    assert wanted(partition, LAG_MAX_MS + 1, LAG_MAX_MS + 2) == (LEADER, FOLLOWER)


@pytest.mark.parametrize(("silent", "stays"), [(FOLLOWER, False), (LEADER, True)])
def test_a_follower_that_does_not_answer_leaves_earlier(silent: int, *, stays: bool) -> None:
    partition = led(LEADER, FOLLOWER, records=3)
    partition.note_fetch(FOLLOWER, 3, 1, 10)

    def isr(now_ms: int) -> tuple[int, ...]:
        return wanted_isr(partition, LEADER, EPOCHS, now_ms, LAG_MAX_MS, {silent}, LAG_MAX_MS // 2)

    assert isr(LAG_MAX_MS // 2) == (LEADER, FOLLOWER)
    assert (isr(LAG_MAX_MS // 2 + 1) == (LEADER, FOLLOWER)) is stays


@pytest.mark.parametrize(
    ("min_insync", "others", "leaves"),
    [(1, True, True), (2, True, True), (3, True, False), (1, False, False)],
)
def test_a_follower_that_does_not_fetch_leaves_if_enough_others_do(
    min_insync: int, *, others: bool, leaves: bool
) -> None:
    """It leaves soon, unless the leader alone would remain, or fewer than the minimum."""
    partition = led(LEADER, FOLLOWER, OTHER, records=3, followers=(FOLLOWER, OTHER))
    partition.use_config(partition.log.config._replace(min_insync_replicas=min_insync))
    for node_id in (FOLLOWER, OTHER):
        partition.note_fetch(node_id, 3, 3, 10)
    partition.append(make_batch(1), NOW)
    partition.note_fetch(OTHER, 3, 4 if others else 3, 120 if others else 11)

    def isr(now_ms: int) -> tuple[int, ...]:
        return wanted_isr(partition, LEADER, EPOCHS, now_ms, LAG_MAX_MS, mute_ms=100)

    assert isr(110) == (LEADER, FOLLOWER, OTHER)
    assert isr(121) == ((LEADER, OTHER) if leaves else (LEADER, FOLLOWER, OTHER))


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
    isr = wanted_isr(partition, LEADER, epochs, 20, LAG_MAX_MS)
    assert isr == (LEADER,)


def test_a_proposed_member_counts_at_once() -> None:
    partition = led(LEADER, records=3)
    partition.note_fetch(FOLLOWER, 3, 3, 10)
    partition.propose_isr((LEADER, FOLLOWER))
    partition.append(make_batch(1), NOW)
    committed = [partition.watermark.offset]
    partition.propose_isr(())
    assert [*committed, partition.watermark.offset] == [3, 4]


def leaves_at(iterations: Iterable[int], caught_up_ms: int) -> int | None:
    """Return the loop iteration in which a follower leaves that has been silent since then."""
    guard = StallGuard(period_ms=100, lag_max_ms=LAG_MAX_MS)
    found = [now for now in iterations if now - caught_up_ms > guard.lag_ms(now)]
    return found[0] if found else None


def test_nothing_shrinks_right_after_a_stall() -> None:
    iterations = [0, 100, 5000, *range(5100, 9001, 100)]
    assert leaves_at(iterations, 0) == 6000
    assert leaves_at(iterations, 5100) == 6200


def test_a_silence_has_one_extension_however_many_stalls_there_are() -> None:
    """The process stalls in each turn of ten: a stall counts for two periods of the extension."""
    stalls = [
        start + iteration
        for start in range(1000, 60_000, 1500)
        for iteration in range(0, 1000, 100)
    ]
    assert leaves_at([0, 100, *stalls], 0) == 2500
    assert leaves_at([0, 100, *stalls], 1200) == 4000, "it was silent in the second extension"
    late = range(0, 60_000, 500)
    assert leaves_at(late, 0) == 3000


def test_a_second_stall_takes_no_time_from_followers_that_live() -> None:
    iterations = [0, 100, 5000, 5100, 30_000, *range(30_100, 40_000, 100)]
    assert leaves_at(iterations, 0) == 30_700, "it had the whole time of turns"
    assert leaves_at(iterations, 5050) == 30_700
