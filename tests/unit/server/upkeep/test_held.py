from __future__ import annotations

import logging

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.replica.partition import Partition
from lakelog.server.upkeep.held import HeldRecords
from storage_kit import NOW, make_batch, memory_store, sole_leader

HOUR = 3_600_000


def expired(archived: int) -> Partition:
    """A partition of ten expired segments of one record each."""
    store = memory_store(config_with(archived)._replace(segment_bytes=len(make_batch())))
    partition = Partition(store.create(), sole_leader(5), lambda each: None)
    for _ in range(10):
        partition.append(make_batch(), NOW)
    return partition


def config_with(archived: int) -> LogConfig:
    return LogConfig(
        retention_ms=HOUR, table_enable=True, table_archived_offsets=(f"0:{archived}",)
    )


def test_retention_deletes_archived_records_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    partition, held = expired(4), HeldRecords(lambda: 1 << 40)
    assert partition.delete_old_segments(NOW + 2 * HOUR) == 4
    assert partition.log.log_start_offset == 4
    assert partition.held_bytes == 6 * len(make_batch())
    for _ in range(2):
        held.note(partition)
    held.check_disk()

    partition.use_config(config_with(10)._replace(segment_bytes=len(make_batch())))
    partition.delete_old_segments(NOW + 2 * HOUR)
    assert (partition.log.log_start_offset, partition.held_bytes) == (10, 0)
    held.note(partition)

    assert [each.event for each in caplog.records if hasattr(each, "event")] == [
        "retention_held",
        "retention_resumed",
    ]


def test_held_records_that_fill_the_disk_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    partition, held = expired(0), HeldRecords(lambda: 100)
    assert partition.delete_old_segments(NOW + 2 * HOUR) == 0
    held.note(partition)
    held.check_disk()
    assert "fill the disk: retention keeps" in caplog.messages[-1]
    assert caplog.records[-1].levelno == logging.ERROR
