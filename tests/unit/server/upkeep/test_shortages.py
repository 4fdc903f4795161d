"""The begin and the end of a shortage, and the calls that follow."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.upkeep.shortages import DESCRIPTORS, SPACE, HeldRecords, Shortages
from lakelog.storage.files import PROBE
from lakelog.storage.folder.space import HEADROOM_BYTES, RESERVE, DiskSpaceGuard, SpaceReserve
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from storage_kit import DATA, NOW, make_batch, memory_store, sole_leader
from virtual_time import run_in_virtual_time

RESERVED = 10_000


class Tasks(AsyncioTasks):
    """A thread's work is done at once, and its result arrives in the next iteration of the loop."""

    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = self.future()
        try:
            self.call_soon(done.set_result, work())
        except OSError as error:
            self.call_soon(done.set_exception, error)
        return done


class LimitedDisk:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.disk = MemoryDisk(SimulatedClock(loop))
        self.disk.make_dirs(DATA)
        self.filled = self.ended = 0
        self.reserve = SpaceReserve(self.disk, DATA, RESERVED, DiskSpaceGuard())
        self.shortages = Shortages(
            DATA, self.disk, Tasks(loop), self.reserve, self._on_filled, self._on_end
        )

    def _on_filled(self) -> None:
        self.filled += 1

    def _on_end(self) -> None:
        self.ended += 1

    def note(self, code: int) -> None:
        self.shortages.note(OSError(code, os.strerror(code)))

    def fill(self, left: int = 0) -> None:
        self.disk.capacity = self.disk.used + left


def in_virtual_time(
    scenario: Callable[[LimitedDisk], Coroutine[Any, Any, None]],
) -> Callable[[Any], None]:
    def test(caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            run_in_virtual_time(lambda loop: scenario(LimitedDisk(loop)))
        expected = EVENTS.get(scenario.__name__)
        if expected is not None:
            assert [getattr(record, "event", "") for record in caplog.records] == expected

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


FULL, SPACE_AGAIN = "log_directory_full", "log_directory_has_space"
NONE_LEFT, SOME_LEFT = "descriptors_exhausted", "descriptors_available"
EVENTS = {
    "test_a_full_disk_has_one_line_at_each_end": [FULL, SPACE_AGAIN],
    "test_both_may_be_short_at_once": [FULL, NONE_LEFT, SOME_LEFT, SPACE_AGAIN],
    "test_free_space_alone_ends_nothing": [FULL, SPACE_AGAIN],
    "test_other_errors_are_no_shortage": [],
    "test_nothing_follows_a_stop": [FULL],
    "test_a_reserve_that_cannot_be_freed_is_said_once": [
        FULL,
        "disk_reserve_failed",
        "disk_reserve_freed",
    ],
}


@in_virtual_time
async def test_a_full_disk_has_one_line_at_each_end(limited: LimitedDisk) -> None:
    limited.fill(HEADROOM_BYTES - 1)
    for code in (errno.ENOSPC, errno.EDQUOT, errno.ENOSPC):
        limited.note(code)
    assert list(limited.shortages.reasons) == [SPACE]
    await asyncio.sleep(10)
    limited.note(errno.ENOSPC)
    assert not limited.ended
    limited.fill(HEADROOM_BYTES)
    await asyncio.sleep(1.1)
    assert limited.shortages.reasons == {}
    assert (limited.filled, limited.ended) == (1, 1)
    assert not limited.disk.exists(DATA / PROBE)


@in_virtual_time
async def test_free_space_alone_ends_nothing(limited: LimitedDisk) -> None:
    """A quota, or too few inodes."""
    limited.disk.fail("write", errno.EDQUOT, suffix=PROBE, times=3)
    limited.note(errno.EDQUOT)
    await asyncio.sleep(3.5)
    assert list(limited.shortages.reasons) == [SPACE]
    await asyncio.sleep(1)
    assert limited.shortages.reasons == {}


@in_virtual_time
async def test_both_may_be_short_at_once(limited: LimitedDisk) -> None:
    limited.fill()
    limited.note(errno.ENOSPC)
    limited.note(errno.EMFILE)
    assert list(limited.shortages.reasons) == [SPACE, DESCRIPTORS]
    await asyncio.sleep(1.1)
    assert list(limited.shortages.reasons) == [SPACE]
    assert limited.ended == 0
    limited.fill(HEADROOM_BYTES)
    await asyncio.sleep(1)
    assert (limited.filled, limited.ended) == (1, 1)


@in_virtual_time
async def test_a_full_disk_ends_no_lack_of_descriptors(limited: LimitedDisk) -> None:
    limited.fill()
    limited.note(errno.ENOSPC)
    limited.note(errno.EMFILE)
    with patch.object(limited.disk, "open", side_effect=OSError(errno.EMFILE, "none left")):
        await asyncio.sleep(3.5)
    assert list(limited.shortages.reasons) == [SPACE, DESCRIPTORS]
    await asyncio.sleep(1)
    assert list(limited.shortages.reasons) == [SPACE]


@in_virtual_time
async def test_no_topic_is_created_without_room(limited: LimitedDisk) -> None:
    limited.shortages.check_capacity(1000)
    limited.fill(100_000)
    limited.shortages.check_capacity(1)
    with pytest.raises(KafkaError, match="100 new partitions need") as refused:
        limited.shortages.check_capacity(100)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    limited.note(errno.EMFILE)
    with pytest.raises(KafkaError, match="no file descriptor left"):
        limited.shortages.check_capacity(1)


@in_virtual_time
async def test_other_errors_are_no_shortage(limited: LimitedDisk) -> None:
    limited.note(errno.EIO)
    limited.shortages.note(None)
    limited.shortages.note(ValueError("no error of the system"))
    assert limited.shortages.reasons == {}


@in_virtual_time
async def test_nothing_follows_a_stop(limited: LimitedDisk) -> None:
    limited.note(errno.ENOSPC)
    limited.shortages.stop()
    limited.note(errno.EMFILE)
    await asyncio.sleep(5)
    assert not limited.ended


async def spent(limited: LimitedDisk) -> None:
    """A full disk whose reserve was used."""
    limited.reserve.open()
    limited.reserve.renew()
    limited.fill()
    limited.note(errno.ENOSPC)
    assert await limited.shortages.free_reserve()


@in_virtual_time
async def test_the_disk_is_full_until_the_reserve_is_there_again(limited: LimitedDisk) -> None:
    await spent(limited)
    limited.disk.capacity = limited.disk.used + RESERVED + HEADROOM_BYTES - 1
    await asyncio.sleep(3.5)
    assert limited.shortages.is_full
    with pytest.raises(KafkaError, match="is full") as refused:
        limited.shortages.check_reserve()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    limited.fill(RESERVED + HEADROOM_BYTES)
    await asyncio.sleep(1)
    assert limited.shortages.reasons == {}
    assert limited.disk.size(DATA / RESERVE) == RESERVED
    limited.shortages.check_reserve()
    assert (limited.filled, limited.ended) == (1, 1)


@in_virtual_time
async def test_the_reserve_is_freed_for_a_full_disk_alone_and_once(limited: LimitedDisk) -> None:
    limited.reserve.open()
    limited.reserve.renew()
    assert not await limited.shortages.free_reserve()
    limited.note(errno.EMFILE)
    assert not await limited.shortages.free_reserve()
    assert limited.filled == 0
    limited.note(errno.ENOSPC)
    both = asyncio.gather(limited.shortages.free_reserve(), limited.shortages.free_reserve())
    assert all(await both), "the second caller uses the same freed space"
    assert not await limited.shortages.free_reserve()


@in_virtual_time
async def test_without_a_reserve_nothing_is_freed(limited: LimitedDisk) -> None:
    limited.note(errno.ENOSPC)
    assert not await limited.shortages.free_reserve()
    limited.shortages.check_reserve()


@in_virtual_time
async def test_a_reserve_that_cannot_be_freed_is_said_once(limited: LimitedDisk) -> None:
    limited.reserve.open()
    limited.shortages.allocate_reserve()
    limited.note(errno.ENOSPC)
    limited.disk.fail("truncate", errno.EIO)
    assert not await limited.shortages.free_reserve()
    assert await limited.shortages.free_reserve()
    limited.shortages.allocate_reserve()
    assert limited.reserve.is_spent, "the probe will do it"


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
