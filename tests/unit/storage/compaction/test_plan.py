"""Which logs are due, and from where to where they are cleaned."""

from __future__ import annotations

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.storage.compaction.plan import CleanableLog, examine
from lakelog.storage.files import LOG
from lakelog.storage.log import Log
from storage_kit import (
    NOW,
    Store,
    append,
    append_in_transaction,
    append_marker,
    make_batch,
    memory_store,
)

HOUR = 3_600_000
CONFIG = LogConfig(
    segment_bytes=len(make_batch()) * 2,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.5,
)


def filled(config: LogConfig = CONFIG, *, batches: int = 10) -> tuple[Store, Log]:
    """Two records a segment, an hour from batch to batch; the last segment is active."""
    store = memory_store(config)
    log = store.create()
    for number in range(batches):
        append(log, make_batch(timestamp=NOW + number * HOUR), now_ms=NOW + 10 * HOUR)
    log.flush()
    return store, log


def look(log: Log, cleaned: int | None = None, **options: int) -> CleanableLog:
    now, stable = options.get("now_ms", NOW + 10 * HOUR), options.get("stable", 1 << 40)
    return examine(log, cleaned, now, stable)


def test_the_active_segment_is_never_cleaned() -> None:
    _, log = filled()
    found = look(log)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 8)
    assert (found.clean_bytes, found.ratio, found.is_due) == (0, 1.0, True)


@pytest.mark.parametrize(("stable", "end"), [(0, 0), (1, 0), (2, 2), (5, 4), (9, 8)])
def test_nothing_undecided_is_cleaned(stable: int, end: int) -> None:
    _, log = filled()
    assert look(log, stable=stable).first_uncleanable_offset == end


def test_nothing_is_cleaned_that_is_not_durable() -> None:
    _, log = filled()
    log.flushes.recovery_point = 5
    assert look(log).first_uncleanable_offset == 4


def test_nothing_is_cleaned_whose_decision_is_not_durable() -> None:
    """Otherwise a newer value replaces an older one, and a power failure then aborts the newer."""
    log = memory_store(CONFIG).create()
    append_in_transaction(log, (1, 0, 0))
    for _ in range(5):
        append(log, make_batch())
    log.flush()
    append_marker(log, 1, 0, commit=True)
    assert log.recovery_point == 6
    assert (log.last_stable_offset, look(log).first_uncleanable_offset) == (7, 0)
    log.flush()
    assert look(log).first_uncleanable_offset == log.segments.active.base_offset > 0


@pytest.mark.parametrize(("hours", "end"), [(10, 0), (9, 2), (5, 6), (4, 6), (3, 8)])
def test_young_records_are_not_cleaned(hours: int, end: int) -> None:
    _, log = filled(CONFIG._replace(min_compaction_lag_ms=hours * HOUR))
    assert look(log).first_uncleanable_offset == end


def test_a_log_is_due_above_its_ratio() -> None:
    _, log = filled()
    assert look(log, 4).ratio == 0.5
    assert not look(log, 4).is_due
    assert look(log, 2).is_due
    assert look(log, 8).ratio == 0.0


def test_an_old_record_makes_a_log_due_whatever_its_ratio() -> None:
    _, log = filled(CONFIG._replace(max_compaction_lag_ms=4 * HOUR))
    assert look(log, 6, now_ms=NOW + 11 * HOUR).is_due
    assert not look(log, 6, now_ms=NOW + 10 * HOUR).is_due
    assert not look(log, 8, now_ms=NOW + 99 * HOUR).is_due, "nothing of it can be cleaned"


def test_records_of_the_future_are_as_old_as_their_file() -> None:
    """KIP-937: a record from the year 2100 must not pin a compacted log either."""
    config = CONFIG._replace(
        min_compaction_lag_ms=HOUR,
        max_compaction_lag_ms=2 * HOUR,
        message_timestamp_after_max_ms=1 << 62,
    )
    store = memory_store(config)
    log = store.create()
    for _ in range(3):
        append(log, make_batch(timestamp=NOW + 100_000 * HOUR))
    log.flush()
    written_ms = max(log.segments.disk.modified_ms(each.path(LOG)) for each in log.segments[:-1])
    assert look(log, now_ms=written_ms + HOUR - 1).first_uncleanable_offset == 0
    found = look(log, now_ms=written_ms + HOUR)
    assert found.first_uncleanable_offset == log.segments.active.base_offset
    assert not look(log, now_ms=written_ms + 2 * HOUR).is_overdue
    assert look(log, now_ms=written_ms + 2 * HOUR + 1).is_overdue


@pytest.mark.parametrize("cleaned", [99, -1, 1])
def test_a_checkpoint_outside_the_log_is_ignored(cleaned: int) -> None:
    _, log = filled()
    log.advance_log_start(3)
    assert look(log, cleaned).first_dirty_offset == 3
