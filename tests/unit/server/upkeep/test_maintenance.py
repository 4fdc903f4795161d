"""The broker's chores, in virtual time and on a disk in memory."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import no_space
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.upkeep.maintenance import Maintenance
from lakelog.server.upkeep.shortages import Shortages
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from lakelog.storage.folder.directory import STRAY_KEPT_DAYS, LogDirectory
from lakelog.storage.folder.space import SpaceReserve
from lakelog.storage.producers.limit import ProducerLimit
from memory_broker import MemoryBroker
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from storage_kit import DATA, TOPIC_ID, create_log, make_batch, sole_leader

SMALL = LogConfig(segment_bytes=400)


class FakeTasks(AsyncioTasks):
    """A thread's work is done at once, or when `release` is called while `held`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.done: Counter[str] = Counter()
        self.held = False
        self.waiting: list[tuple[str, Callable[[], Any], asyncio.Future[Any]]] = []

    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future = self.future()
        self.waiting.append((lane, work, future))
        if not self.held:
            self.release()
        return future

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for lane, work, future in waiting:
            try:
                future.set_result(work())
            except OSError as error:
                future.set_exception(error)
            self.done[lane] += 1


class Broker:
    def __init__(self, loop: SimulatedLoop, settings: dict[str, str]) -> None:
        self.clock = SimulatedClock(loop)
        self.disk = MemoryDisk(self.clock)
        self.tasks = FakeTasks(loop)
        self.config = BrokerConfig(settings)
        self.directory = LogDirectory(
            DATA,
            self.disk,
            self.clock,
            SeededRandom(1),
            producers=ProducerLimit(expiration_ms=self.config.get_int("producer.id.expiration.ms")),
        )
        self.directory.open(None, 1)
        self.directory.load_logs(lambda topic, topic_id: LogConfig(), {TOPIC_ID})
        self.partitions = PartitionRegistry()
        self.sweeps = 0
        self.took: list[float] = []
        reserve = SpaceReserve(self.disk, DATA, 0, self.directory.space_guard)
        reserve.open()
        self.ended = 0
        self.shortages = Shortages(
            DATA, self.disk, self.tasks, reserve, self._on_full, self._on_shortage_over
        )
        self.on_sweep: Callable[[], object] = lambda: None
        self.sweep_error: Exception | None = None
        self.maintenance = Maintenance(
            self.partitions,
            self.directory,
            self._sweep,
            lambda: self.config,
            self.clock,
            self.disk,
            self.tasks,
            self.took.append,
            self.shortages,
            StoredChecks(self.tasks),
        )
        self.maintenance.start()

    def _on_full(self) -> None:
        self.tasks.call_soon(self.maintenance.retain_soon)

    def _on_shortage_over(self) -> None:
        self.ended += 1

    def _sweep(self) -> None:
        self.sweeps += 1
        self.on_sweep()
        if self.sweep_error is not None:
            raise self.sweep_error

    def partition(self, index: int = 0, config: LogConfig = SMALL) -> Partition:
        log = create_log(self.directory, "topic", index, TOPIC_ID, config)
        partition = Partition(log, sole_leader(1), self.maintenance.flush_soon)
        partition.assume(sole_leader(1), 0)
        self.partitions.add(partition)
        return partition

    def append(self, partition: Partition, batches: int = 1) -> None:
        now = self.clock.wall_ms()
        for _ in range(batches):
            partition.append(make_batch(2, timestamp=now), now)

    def offsets(self, name: str) -> list[int]:
        path = DATA / name
        return list(decode_offsets(self.disk.read(path)).values()) if self.exists(path) else []

    def exists(self, path: Path) -> bool:
        return self.disk.exists(path)


def in_broker(**settings: str) -> Callable[[Callable[[Broker], Coroutine[Any, Any, None]]], Any]:
    """Turns a scenario into a test; settings have `_` for `.`."""

    def wrap(scenario: Callable[[Broker], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def test() -> None:
            loop = SimulatedLoop(None)
            values = {key.replace("_", "."): value for key, value in settings.items()}
            broker = Broker(loop, values)

            async def whole() -> None:
                await scenario(broker)
                broker.tasks.held = False
                broker.tasks.release()
                await broker.maintenance.stop()

            try:
                loop.run_until_complete(whole())
            finally:
                loop.close()

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return wrap


# Flushing


@in_broker()
async def test_a_closed_segment_is_made_durable(broker: Broker) -> None:
    partition = broker.partition()
    broker.append(partition)
    await asyncio.sleep(3)
    assert partition.log.recovery_point == 0, "nothing asks for it"
    broker.append(partition, 6)
    assert len(partition.log.segments) > 1
    await asyncio.sleep(0.1)
    assert partition.log.recovery_point == partition.log.log_end_offset
    assert partition.log.flushes.unflushed_segments() in ([], [partition.log.segments.active])


@in_broker()
async def test_segments_closed_during_a_flush_are_flushed_after_it(broker: Broker) -> None:
    partition = broker.partition()
    broker.tasks.held = True
    broker.append(partition, 6)
    await asyncio.sleep(0.1)
    broker.append(partition, 6)
    await asyncio.sleep(0.1)
    assert len(broker.tasks.waiting) == 1, "one flush of a log at a time"
    broker.tasks.held = False
    broker.tasks.release()
    await asyncio.sleep(0.1)
    assert len(partition.log.flushes.unflushed_segments()) <= 1


@in_broker()
async def test_flush_ms_bounds_how_long_a_record_is_not_durable(broker: Broker) -> None:
    partition = broker.partition(config=LogConfig(flush_ms=5000))
    other = broker.partition(1)
    broker.append(partition)
    broker.append(other)
    await asyncio.sleep(6.1)
    assert (partition.log.recovery_point, other.log.recovery_point) == (2, 0)


@in_broker()
async def test_a_failed_flush_takes_the_partition_offline(broker: Broker) -> None:
    partition, other = broker.partition(), broker.partition(1)
    broker.disk.fail("sync", errno.EIO, suffix="topic-0/00000000000000000000.log")
    broker.append(partition, 6)
    broker.append(other, 6)
    await asyncio.sleep(0.1)
    assert partition.offline_reason is not None
    assert "it could not be made durable" in partition.offline_reason
    assert partition.log.broken
    assert other.offline_reason is None
    assert other.log.recovery_point == other.log.log_end_offset
    flushes = broker.tasks.done["fsync"]
    broker.maintenance.flush_soon(partition)
    await asyncio.sleep(0.1)
    assert broker.tasks.done["fsync"] == flushes, "it is never tried again"


@in_broker()
async def test_a_flush_of_a_deleted_partition_is_no_failure(broker: Broker) -> None:
    partition = broker.partition()
    broker.tasks.held = True
    broker.append(partition, 6)
    await asyncio.sleep(0.1)
    broker.partitions.remove(partition)
    broker.directory.schedule_delete(partition.log)
    broker.disk.fail("sync", errno.EIO, suffix="/00000000000000000000.log")
    broker.tasks.release()
    await asyncio.sleep(0.1)
    assert partition.offline_reason is None


# The data folder


@in_broker(replica_high_watermark_checkpoint_interval_ms="2000")
async def test_checkpoints_follow_the_logs(broker: Broker) -> None:
    partition = broker.partition()
    broker.append(partition, 6)
    await asyncio.sleep(2.1)
    assert broker.offsets(HIGH_WATERMARKS) == [12]
    assert broker.offsets(RECOVERY_POINTS) == [partition.log.recovery_point]
    broker.append(partition)
    await asyncio.sleep(2)
    assert broker.offsets(HIGH_WATERMARKS) == [14]


@in_broker(replica_high_watermark_checkpoint_interval_ms="1000")
async def test_one_checkpoint_is_written_at_a_time(broker: Broker) -> None:
    broker.partition()
    broker.tasks.held = True
    await asyncio.sleep(5.5)
    assert [lane for lane, _, _ in broker.tasks.waiting] == ["checkpoint"]
    broker.tasks.held = False
    broker.tasks.release()
    await asyncio.sleep(2)
    assert broker.tasks.done["checkpoint"] >= 2


@in_broker(replica_high_watermark_checkpoint_interval_ms="1000000")
async def test_a_caller_that_waits_for_a_checkpoint_has_current_offsets_written(
    broker: Broker,
) -> None:
    partition = broker.partition()
    broker.tasks.held = True
    broker.append(partition, 1)
    first = asyncio.ensure_future(broker.maintenance.checkpointed())
    await asyncio.sleep(0)
    broker.append(partition, 1)
    second = asyncio.ensure_future(broker.maintenance.checkpointed())
    await asyncio.sleep(0.1)
    assert not first.done()
    assert not second.done()
    broker.tasks.held = False
    broker.tasks.release()
    await asyncio.gather(first, second)
    assert broker.offsets(HIGH_WATERMARKS) == [partition.watermark.offset]


class FullDiskJob:
    def run(self) -> None:
        raise no_space()


@in_broker(replica_high_watermark_checkpoint_interval_ms="1000000")
async def test_only_a_checkpoint_that_frees_space_takes_the_reserve(broker: Broker) -> None:
    """A topic of a name that was used before waits for one, too."""
    freed: list[bool] = []

    async def free_reserve() -> bool:
        freed.append(True)
        return False

    broker.shortages.free_reserve = free_reserve  # type: ignore[method-assign]
    begin = broker.directory.begin_checkpoints
    broker.directory.begin_checkpoints = lambda *_: FullDiskJob()  # type: ignore[method-assign, assignment]
    assert not await broker.maintenance.checkpointed()
    assert freed == []
    assert not await broker.maintenance.checkpointed(from_reserve=True)
    assert freed == [True]
    broker.directory.begin_checkpoints = begin  # type: ignore[method-assign]


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_checkpoint_that_fails_is_written_the_next_time(
    operation: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A shortage is reported to the part that logs it once."""

    @in_broker(replica_high_watermark_checkpoint_interval_ms="1000")
    async def scenario(broker: Broker) -> None:
        broker.partition()
        broker.disk.fail(operation, code, suffix=f"{HIGH_WATERMARKS}.tmp")
        await asyncio.sleep(1.1)
        assert broker.offsets(HIGH_WATERMARKS) == []
        assert bool(broker.shortages.reasons) is (code != errno.EIO)
        await asyncio.sleep(1)
        assert broker.offsets(HIGH_WATERMARKS) == [0]

    scenario()
    assert ("the checkpoints could not be written" in caplog.text) is (code == errno.EIO)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_old_segments_go_and_a_log_that_fails_keeps_no_other_from_it(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk, which passes, all but the active segment go; of a device that fails nothing
    is asked again."""

    @in_broker(log_retention_check_interval_ms="10000")
    async def scenario(broker: Broker) -> None:
        config = LogConfig(segment_bytes=400, retention_ms=60_000)
        partitions = [broker.partition(index, config) for index in range(3)]
        for partition in partitions:
            broker.append(partition, 6)
        partitions[2].take_offline("as a test wants it")
        await asyncio.sleep(1)
        broker.disk.fail("name", code, suffix="topic-0/00000000000000000012.log")
        await asyncio.sleep(64)
        assert [each.log.log_start_offset for each in partitions] == [0, 0, 0]
        await asyncio.sleep(6)
        fails = code == errno.EIO
        starts = [each.log.log_start_offset for each in partitions]
        assert starts == [0 if fails else 6, 12, 0]
        await asyncio.sleep(10)
        assert (partitions[0].offline_reason is not None) is fails
        starts = [each.log.log_start_offset for each in partitions]
        assert starts == [0 if fails else 12, 12, 0]

    scenario()
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert any("retention: topic-0" in each for each in warnings) is (code == errno.EIO)


@in_broker()
async def test_the_first_look_for_old_segments_does_not_wait_for_the_interval(
    broker: Broker,
) -> None:
    """Five minutes by default, which a broker that is often started would never reach."""
    partition = broker.partition(config=LogConfig(segment_bytes=400, retention_ms=1000))
    broker.append(partition, 6)
    await asyncio.sleep(31)
    assert partition.log.log_start_offset == 12


@in_broker()
async def test_directories_of_deleted_topics_go_after_their_delay(broker: Broker) -> None:
    partition = broker.partition(config=LogConfig(file_delete_delay_ms=20_000))
    broker.partitions.remove(partition)
    broker.directory.schedule_delete(partition.log)
    folder = partition.log.folder
    await asyncio.sleep(19)
    assert broker.exists(folder)
    await asyncio.sleep(7)
    assert not broker.exists(folder)
    assert broker.tasks.done["remove"] == 1


@in_broker()
async def test_on_a_full_disk_nothing_that_is_deleted_is_kept(broker: Broker) -> None:
    partition = broker.partition(config=LogConfig(file_delete_delay_ms=600_000))
    broker.partitions.remove(partition)
    broker.directory.schedule_delete(partition.log)
    config = LogConfig(segment_bytes=400, retention_bytes=1000, file_delete_delay_ms=600_000)
    full = broker.partition(1, config)
    broker.append(full, 12)
    broker.disk.capacity = broker.disk.used
    broker.shortages.note(OSError(errno.ENOSPC, "full"))
    await asyncio.sleep(6)
    assert not broker.exists(partition.log.folder)
    assert full.log.log_start_offset > 0
    assert not [name for name in broker.disk.list(full.log.folder) if name.endswith(".deleted")]


@in_broker(log_retention_check_interval_ms="3600000")
async def test_on_a_full_disk_retention_runs_often(broker: Broker) -> None:
    config = LogConfig(segment_bytes=400, retention_ms=60_000)
    partition = broker.partition(config=config)
    await asyncio.sleep(40)
    broker.append(partition, 6)
    broker.disk.capacity = broker.disk.used
    broker.shortages.note(OSError(errno.ENOSPC, "full"))
    await asyncio.sleep(70)
    assert partition.log.log_start_offset == 12


@in_broker(producer_id_expiration_ms="1000")
async def test_producers_that_are_long_gone_are_forgotten(broker: Broker) -> None:
    partition = broker.partition()
    now = broker.clock.wall_ms()
    partition.append(make_batch(1, timestamp=now, producer=(7, 0, 0)), now)
    assert list(partition.log.producers.entries) == [7]
    await asyncio.sleep(610)
    assert list(partition.log.producers.entries) == []


@in_broker(producer_id_expiration_ms="1000", producer_id_expiration_check_interval_ms="2000")
async def test_producers_are_looked_through_as_often_as_is_said(broker: Broker) -> None:
    partition = broker.partition()
    now = broker.clock.wall_ms()
    partition.append(make_batch(1, timestamp=now, producer=(7, 0, 0)), now)
    await asyncio.sleep(2.1)
    assert list(partition.log.producers.entries) == []


@in_broker()
async def test_producers_are_forgotten_as_soon_as_the_setting_says_while_it_runs(
    broker: Broker,
) -> None:
    partition = broker.partition()
    now = broker.clock.wall_ms()
    partition.append(make_batch(1, timestamp=now, producer=(7, 0, 0)), now)
    broker.config = broker.config.with_dynamic({"producer.id.expiration.ms": "1000"}, {})
    await asyncio.sleep(610)
    assert list(partition.log.producers.entries) == []


# Running


def test_a_chore_that_fails_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    @in_broker()
    async def scenario(broker: Broker) -> None:
        broker.sweep_error = ZeroDivisionError()
        seen.append(broker)
        await asyncio.sleep(16)

    scenario()
    assert seen[0].sweeps == 3
    assert caplog.text.count("sweep failed") == 3


@in_broker()
async def test_the_duration_of_each_task_is_reported(broker: Broker) -> None:
    loop = asyncio.get_running_loop()
    broker.on_sweep = lambda: setattr(loop, "_now", loop.time() + 0.12)
    await asyncio.sleep(6)
    assert max(broker.took) == pytest.approx(0.12)
    assert len(broker.took) > 6, "other tasks are reported too"


@in_broker()
async def test_a_stop_waits_for_the_device_and_ends_the_chores(broker: Broker) -> None:
    partition = broker.partition(config=LogConfig(segment_bytes=400, flush_ms=1000))
    broker.tasks.held = True
    broker.append(partition, 6)
    await asyncio.sleep(0.1)
    stopping = asyncio.ensure_future(broker.maintenance.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()
    broker.tasks.held = False
    broker.tasks.release()
    await stopping
    point = partition.log.recovery_point
    broker.append(partition, 6)
    await asyncio.sleep(60)
    assert partition.log.recovery_point == point
    assert partition.log.flushes.may_be_closed


@pytest.mark.parametrize(("age_days", "is_full"), [(6, False), (6, True), (8, False)])
def test_a_folder_of_an_unknown_topic_goes_after_its_time_also_on_a_full_disk(
    age_days: int, is_full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker = MemoryBroker()
    since_ms = broker.clock.wall_ms() - age_days * 86_400_000
    folder = DATA / f"gone-0.{since_ms:012x}{'0' * 20}-stray"
    broker.disk.make_dirs(folder)
    with broker as world:
        if is_full:
            world._server._folder.shortages.note(no_space())
        caplog.clear()
        world._server._maintenance._purge()
        assert world.disk.exists(folder) is (age_days < STRAY_KEPT_DAYS)
        events = [getattr(record, "event", None) for record in caplog.records]
        assert ("stray_folder_removed" in events) is (age_days > STRAY_KEPT_DAYS)
