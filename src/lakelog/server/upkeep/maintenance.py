"""The periodic work of the broker: flush, checkpoint, retain, purge, sweep.

Each task on the loop is short. Work that waits for the device runs in threads, one for each kind,
so that an fsync is never behind a slow removal.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import KafkaError, OutOfCapacityError, is_shortage, lacks_descriptors
from lakelog.base.events import event
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Clock, Disk, Processes, Tasks, Timer
from lakelog.server.upkeep.cleaner import Cleaner
from lakelog.server.upkeep.shortages import HeldRecords, Shortages
from lakelog.server.upkeep.stored_checks import Failures, StoredChecks
from lakelog.storage.errors import CorruptLog
from lakelog.storage.flush import FlushJob
from lakelog.storage.folder.directory import STRAY_KEPT_DAYS, LogDirectory
from lakelog.storage.preparation import NotReady

logger = logging.getLogger(__name__)

_FLUSH_RETRY_S = 1.0
_FLUSH_CHECK_S = 1.0
_SWEEP_S = 5.0
_RETENTION_DELAY_S = 30.0
_RETENTION_FULL_S = 5.0
"""Seconds between two runs of retention while the disk is full."""
_PURGE_S = 5.0
_RESERVE_S = 30.0
_PARTITIONS_PER_ITERATION = 256
"""Partitions in one iteration of the loop: a millisecond or two of work."""


class Maintenance:
    """The periodic work of one broker, from `start` to `stop`. `config` returns the one in force.

    Args:
        sweep: closes idle connections; called every few seconds.
        took: called with the seconds for which each task blocked the loop.
        shortages: notes failures; keeps a reserve, and frees it for work that frees space.
    """

    def __init__(
        self,
        partitions: PartitionRegistry,
        directory: LogDirectory,
        sweep: Callable[[], None],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        disk: Disk,
        tasks: Tasks,
        took: Callable[[float], object],
        shortages: Shortages,
        checks: StoredChecks,
    ) -> None:
        self._checks = checks
        self._took = took
        self._shortages = shortages
        self._partitions = partitions
        self._directory = directory
        self._sweep = sweep
        self._to_flush: dict[Partition, None] = {}
        self._config = config
        self._clock = clock
        self._disk = disk
        self._tasks = tasks
        self._timers: dict[str, Timer] = {}
        self._under_way: set[asyncio.Future[None]] = set()
        self._checkpointing = self._checkpoint_again = False
        self._written_marks: object = None
        """The values of the last checkpoint that was written."""
        self._unserved: list[asyncio.Future[bool]] = []
        """The callers that wait for the next checkpoint."""
        self._held = HeldRecords(lambda: disk.space(directory.path)[1])
        self._wants_reserve = False
        """Whether the last run of retention lacked space."""
        self._stopped = False

    def make_cleaner(self, processes: Processes) -> Cleaner:
        """Return a cleaner of the same logs, with these checkpoints and flushes."""
        return Cleaner(
            self._partitions,
            self._directory,
            self._config,
            self._clock,
            self._tasks,
            processes,
            self.checkpoint_soon,
            self.flush_soon,
            self._retain_one,
            self._shortages.note,
            self._checks,
        )

    def start(self) -> None:
        """Start the timers of all periodic tasks."""
        self._every("flush", lambda: _FLUSH_CHECK_S, self._flush_aged)
        self._every("sweep", lambda: _SWEEP_S, self._sweep)
        self._every("purge", lambda: _PURGE_S, self._purge)
        self._every(
            "expire producers",
            lambda: self._seconds("producer.id.expiration.check.interval.ms"),
            self._expire_producers,
        )
        self._every(
            "checkpoint",
            lambda: self._seconds("replica.high.watermark.checkpoint.interval.ms"),
            self._checkpoint_changes,
        )
        self._every("reserve", lambda: _RESERVE_S, self._shortages.allocate_reserve, first_s=0)
        first = min(_RETENTION_DELAY_S, self._retention_s())
        self._every("retention", self._retention_s, self._retain, first_s=first)

    async def stop(self) -> None:
        """Stop, and wait for the flushes under way."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        while self._under_way:
            await asyncio.wait(self._under_way)

    def flush_soon(self, partition: Partition) -> None:
        """Flush the log after this iteration of the loop, together with later appends of the loop
        iteration."""
        if not self._to_flush:
            self._tasks.call_soon(self._flush_wanted)
        self._to_flush[partition] = None

    def _flush_wanted(self) -> None:
        partitions, self._to_flush = self._to_flush, {}
        for partition in partitions:
            self._flush(partition)

    def _every(
        self,
        name: str,
        period_s: Callable[[], float],
        chore: Callable[[], None],
        *,
        first_s: float | None = None,
    ) -> None:
        def run() -> None:
            if self._stopped:
                return
            begun = self._clock.monotonic()
            try:
                chore()
            except Exception:  # a failed run must not end the following ones
                logger.exception("%s failed", name, extra=event("chore_failed", chore=name))
            self._took(self._clock.monotonic() - begun)
            self._timers[name] = self._tasks.call_later(period_s(), run)

        delay = period_s() if first_s is None else first_s
        self._timers[name] = self._tasks.call_later(delay, run)

    def _seconds(self, key: str) -> float:
        return max(self._config().get_int(key), 1) / 1000

    # Flushing

    def _flush_aged(self) -> None:
        """Flush partitions whose records have been unflushed for `flush.ms`."""
        now = self._clock.wall_ms()
        for partition in list(self._partitions.flushed_by_age):
            if now - partition.flushed_ms >= partition.log.config.flush_ms:
                # Before the flush ends: the next check must not start another one of the same age.
                partition.flushed_ms = now
                self._flush(partition)

    def _flush(self, partition: Partition) -> None:
        if self._stopped or partition.is_retired or partition.offline_reason is not None:
            return
        try:
            job = partition.log.begin_flush()
        except (OSError, CorruptLog) as error:
            if is_shortage(error) and not partition.log.broken:
                self._flush_later(partition, error)
                return
            self._fail(partition, error)
            return
        if job is None:
            return
        work = self._tasks.offload("fsync", job.run)
        self._under_way.add(work)
        work.add_done_callback(lambda done: self._on_flushed(partition, job, done))

    def _on_flushed(self, partition: Partition, job: FlushJob, work: asyncio.Future[None]) -> None:
        self._under_way.discard(work)
        error = work.exception()
        log = partition.log
        if lacks_descriptors(error):
            # Nothing was synced, so nothing is lost: unlike a failed fsync, this can be retried.
            log.flushes.put_off(job)
            self._flush_later(partition, error)
            return
        if error is not None:
            job.release()
            self._fail(partition, error)
            return
        log.finish_flush(job)
        partition.note_flush()
        if (
            partition.watermark.written < log.log_end_offset
            or len(log.flushes.unflushed_segments()) > 1
        ):
            self.flush_soon(partition)

    def _flush_later(self, partition: Partition, error: OSError) -> None:
        self._shortages.note(error)
        self._tasks.call_later(_FLUSH_RETRY_S, self.flush_soon, partition)

    def _fail(self, partition: Partition, error: BaseException) -> None:
        if not partition.is_retired:
            partition.take_offline(f"it could not be made durable: {error}")

    # The data folder

    def checkpoint_soon(self) -> None:
        """Write the checkpoints of offsets in a later callback, before their interval is over."""
        if not self._stopped:
            self._tasks.call_soon(self._checkpoint)

    async def checkpointed(self, *, from_reserve: bool = False) -> bool:
        """Wait until the current offsets are durable; return False if they cannot be.

        All waiting callers share one checkpoint. On a full disk it may use the reserve
        (`from_reserve`) where that frees space: segments can be deleted only after the new log
        start offset is durable. A failure is logged.
        """
        done = await self._next_checkpoint()
        if not done and from_reserve and await self._shortages.free_reserve():
            done = await self._next_checkpoint()
        if done and self._shortages.is_full:
            self.retain_soon()
        return done

    async def _next_checkpoint(self) -> bool:
        waiter: asyncio.Future[bool] = self._tasks.future()
        self._unserved.append(waiter)
        self._checkpoint()
        return await waiter

    def _checkpoint_changes(self) -> None:
        if self._marks() != self._written_marks:
            self._checkpoint()

    def _marks(self) -> object:
        """Return the contents of the checkpoint files."""
        directory = self._directory
        return self._partitions.marks(), dict(directory.cleaner_offsets), len(directory.failed)

    def _checkpoint(self) -> None:
        if self._checkpointing:
            self._checkpoint_again = True
            return
        self._checkpoint_again = False
        # Taken before the offsets are copied: these callers' offsets are in this checkpoint. Later
        # callers wait for the next one.
        served, self._unserved = self._unserved, []
        marks = self._marks()
        job = self._directory.begin_checkpoints(self._partitions.high_watermarks)
        self._checkpointing = True
        work = self._tasks.offload("checkpoint", job.run)
        self._under_way.add(work)
        work.add_done_callback(partial(self._on_checkpointed, served, marks))

    def _on_checkpointed(
        self, served: list[asyncio.Future[bool]], marks: object, work: asyncio.Future[None]
    ) -> None:
        self._under_way.discard(work)
        self._checkpointing = False
        error = work.exception()
        if is_shortage(error):
            self._shortages.note(error)  # the next interval retries
        elif error is not None:
            logger.error(
                "the checkpoints could not be written: %s", error, extra=event("checkpoint_failed")
            )
        else:
            self._written_marks = marks
        for waiter in served:
            if not waiter.done():
                waiter.set_result(work.exception() is None)
        if self._unserved or (
            self._checkpoint_again and not self._stopped and work.exception() is None
        ):
            self._checkpoint()

    def _for_each(self, chore: Callable[[Partition], None]) -> None:
        """Call `chore` for all partitions; the loop runs after every few hundred."""
        self._go_on_with(iter(list(self._partitions)), chore)

    def _go_on_with(self, left: Iterator[Partition], chore: Callable[[Partition], None]) -> None:
        if self._stopped:
            return
        some = list(islice(left, _PARTITIONS_PER_ITERATION))
        for partition in some:
            # A partition may have failed or been deleted since the list was made.
            if partition.is_online:
                chore(partition)
        if len(some) == _PARTITIONS_PER_ITERATION:
            self._tasks.call_soon(self._go_on_with, left, chore)

    def _retention_s(self) -> float:
        configured = self._seconds("log.retention.check.interval.ms")
        return min(_RETENTION_FULL_S, configured) if self._shortages.is_full else configured

    def retain_soon(self) -> None:
        """Run retention at once because the disk is full; remove deleted files without a delay."""
        timer = self._timers.pop("retention", None)
        if timer is not None:
            timer.cancel()
            self._every("retention", self._retention_s, self._retain, first_s=0)

    def _retain(self) -> None:
        self._held.check_disk()
        self._wants_reserve = False
        self._for_each(self._retain_one)

    def _retain_one(self, partition: Partition) -> None:
        try:
            deleted = partition.delete_old_segments(
                self._clock.wall_ms(), at_once=self._shortages.is_full
            )
        except NotReady as first:
            self._checks.run([(partition, first.job)], partial(self._retain_again, partition))
            return
        except OutOfCapacityError:  # the shortage is logged already
            if not self._wants_reserve:
                self._wants_reserve = True
                self._tasks.spawn(self._retain_from_reserve(), name="retain from reserve")
            return
        except KafkaError as error:  # the other partitions are handled nevertheless
            logger.error(
                "retention: %s-%d: %s",
                partition.topic,
                partition.index,
                error,
                extra=event("retention_failed", topic=partition.topic, partition=partition.index),
            )
            return
        self._held.note(partition)
        if deleted:
            self.checkpoint_soon()
            if self._shortages.is_full:
                self._tasks.call_soon(self.retain_soon)  # the purge removes their files
            logger.info(
                "retention: %s-%d now starts at offset %d (segments deleted: %d)",
                partition.topic,
                partition.index,
                partition.log.log_start_offset,
                deleted,
                extra=event(
                    "segments_deleted",
                    topic=partition.topic,
                    partition=partition.index,
                    log_start_offset=partition.log.log_start_offset,
                    segments=deleted,
                ),
            )

    async def _retain_from_reserve(self) -> None:
        """Retry with the reserve: a log of one segment must create another before deleting it."""
        if await self._shortages.free_reserve():
            self.retain_soon()

    def _retain_again(self, partition: Partition, failures: Failures) -> None:
        """Apply retention after an index was loaded; the next round retries failures."""
        if not failures and not self._stopped and partition.is_online:
            self._retain_one(partition)

    def _purge(self) -> None:
        """Remove directories of deleted topics after their delay, or at once on a full disk.

        Directories of unknown topics always have their whole time.
        """
        due_ms = math.inf if self._shortages.is_full else self._clock.wall_ms()
        for path in self._directory.deletions.due(due_ms):
            self._remove(path)
        for path in self._directory.strays.due(self._clock.wall_ms()):
            logger.warning(
                "Removing %s: it has belonged to no known topic for %d days",
                path,
                STRAY_KEPT_DAYS,
                extra=event("stray_folder_removed", path=path, days=STRAY_KEPT_DAYS),
            )
            self._remove(path)

    def _remove(self, path: Path) -> None:
        work = self._tasks.offload("remove", partial(self._disk.remove_tree, path))
        work.add_done_callback(partial(self._on_removed, path))

    def _on_removed(self, path: Path, work: asyncio.Future[None]) -> None:
        """Retry soon without a descriptor; leave other failures to the next start."""
        error = work.exception()
        if is_shortage(error):
            self._shortages.note(error)
            self._directory.deletions.add(path, self._clock.wall_ms())
        elif error is not None:
            logger.error(
                "%s cannot be removed: %s",
                path,
                error,
                extra=event("folder_removal_failed", path=path),
            )

    def _expire_producers(self) -> None:
        """Forget producers that were idle for `producer.id.expiration.ms`."""
        now = self._clock.wall_ms()
        expiration_ms = self._config().get_int("producer.id.expiration.ms")

        def expire(partition: Partition) -> None:
            partition.log.producers.expiration_ms = expiration_ms
            partition.log.producers.remove_expired(now)

        self._for_each(expire)
