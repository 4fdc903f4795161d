"""Compacts logs: selects them, has helper processes clean them, and swaps in the cleaned segments.

Only short work runs on the loop: selecting logs and renaming files. Helper processes, up to
`log.cleaner.threads`, read and write the records. A helper runs as long as any log is due. A log
with damaged data, or whose helpers died three times, is not compacted until the next start of the
broker. Without space or descriptors a round is postponed.

Source: `LogCleaner` of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import is_shortage
from lakelog.base.events import event
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Child, Clock, Processes, Tasks, Timer
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.compaction.job import (
    CleanedGroup,
    CompactionDone,
    CompactionFailed,
    decode_answer,
)
from lakelog.storage.compaction.plan import CleanableLog, CleanerLimits, examine, make_job
from lakelog.storage.compaction.swap import SwapPutOff, begin_swap, can_swap, end_swap, finish_swap
from lakelog.storage.errors import StorageError
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.preparation import NotReady

logger = logging.getLogger(__name__)

HELPER = "lakelog.server.upkeep.cleaner_helper"
_HELPERS_MAX = 32
"""Limit of helpers, even if `log.cleaner.threads` is higher; each takes about 20 MiB."""
_DEATHS_MAX = 3
_MAP_BYTES_MAX = (1 << 31) - 1


class _RoundAbandoned(Exception):  # noqa: N818 - an event
    """The round ends without a result; the log is unchanged."""


class _HelperDied(Exception):  # noqa: N818 - an event
    pass


@dataclass(slots=True)
class CleanerCounts:
    """Counts since the start of the broker; `dirtiest_ratio` is the present one of cleanable logs.

    `helper_deaths` counts rounds whose helper died. Bytes are the sizes of segments before and
    after.
    """

    rounds: int = 0
    helper_deaths: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dirtiest_ratio: float = 0.0


class Cleaner:
    """The compactions of one broker, from `start` to `stop`.

    Args:
        config: returns the configuration in force.
        checkpoint: schedules the checkpoint of the folder's offsets.
        flush: schedules a flush of a partition.
        retain: applies retention to a partition.
        note_shortage: called with temporary failures, see `Shortages.note`.
    """

    def __init__(
        self,
        partitions: PartitionRegistry,
        directory: LogDirectory,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        tasks: Tasks,
        processes: Processes,
        checkpoint: Callable[[], None],
        flush: Callable[[Partition], None],
        retain: Callable[[Partition], None],
        note_shortage: Callable[[OSError], object],
        checks: StoredChecks,
    ) -> None:
        self._partitions = partitions
        self._directory = directory
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._processes = processes
        self._checkpoint = checkpoint
        self._flush = flush
        self._retain_one = retain
        self._note_shortage = note_shortage
        self._checks = checks
        self._timer: Timer | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._in_progress: set[Partition] = set()
        self._deaths: dict[Partition, int] = {}
        self.uncleanable: set[Partition] = set()
        self.counts = CleanerCounts()

    def start(self) -> None:
        """Look for logs to clean after `log.cleaner.backoff.ms`, and again at that interval."""
        backoff_s = max(self._config().get_int("log.cleaner.backoff.ms"), 1) / 1000
        self._timer = self._tasks.call_later(backoff_s, self._tick)

    async def stop(self) -> None:
        """End the helpers; the next start removes their unfinished files."""
        if self._timer is not None:
            self._timer.cancel()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    # Choosing

    def _tick(self) -> None:
        try:
            self._retain()
            self._start_helpers()
        finally:
            self.start()

    def _retain(self) -> None:
        """Delete old segments of compacted logs, at the pace of Kafka's cleaner."""
        for partition in self._compacted():
            self._retain_one(partition)

    def _start_helpers(self) -> None:
        config = self._config()
        if not config.get_bool("log.cleaner.enable"):
            return
        self._forget_retired()
        while len(self._workers) < self._helpers_allowed:
            chosen = self._choose()
            if chosen is None:
                return
            worker = self._tasks.spawn(self._work(*chosen), name="cleaner")
            self._workers.add(worker)
            worker.add_done_callback(self._on_worker_done)

    @property
    def _helpers_allowed(self) -> int:
        return min(self._config().get_int("log.cleaner.threads"), _HELPERS_MAX)

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            logger.error(
                "compaction failed", exc_info=worker.exception(), extra=event("cleaner_failed")
            )

    def _compacted(self) -> list[Partition]:
        return [
            partition
            for partition in self._partitions
            if "compact" in partition.log.config.cleanup_policy
            and partition.offline_reason is None
            and not partition.log.broken
        ]

    def _forget_retired(self) -> None:
        self.uncleanable = {entry for entry in self.uncleanable if not entry.is_retired}
        self._deaths = {key: count for key, count in self._deaths.items() if not key.is_retired}

    def _choose(self) -> tuple[Partition, CleanableLog] | None:
        """Return the dirtiest log that is due, marked as in progress."""
        now, offsets = self._clock.wall_ms(), self._directory.cleaner_offsets
        candidates: list[tuple[Partition, CleanableLog]] = []
        for partition in self._compacted():
            if partition in self._in_progress or partition in self.uncleanable:
                continue
            stable_end = min(
                partition.log.segments.active.base_offset, partition.last_stable_offset
            )
            if partition.log.durable_stable_offset < stable_end:
                self._flush(partition)  # a later round compacts the records made durable
            cleaned = offsets.get((partition.topic, partition.index))
            try:
                log = examine(partition.log, cleaned, now, partition.compactable_end)
            except NotReady as first:  # the next tick finds the index loaded
                self._checks.run([(partition, first.job)])
                continue
            except (OSError, StorageError) as error:
                if is_shortage(error):
                    self._note_shortage(error)
                else:
                    self._mark_uncleanable(partition, str(error))
                continue
            candidates.append((partition, log))
        self.counts.dirtiest_ratio = max((log.ratio for _, log in candidates), default=0.0)
        # A cleaning writes the new segments before it deletes the old ones, so it would make a
        # lack of space worse.
        due = (
            []
            if self._directory.space_guard.rejects_writes
            else [candidate for candidate in candidates if candidate[1].is_due]
        )
        chosen = max(due, key=lambda entry: entry[1].ratio, default=None)
        if chosen is not None:
            # Before the first await, so that no other helper chooses the same log.
            self._in_progress.add(chosen[0])
        return chosen

    def _mark_uncleanable(self, partition: Partition, reason: str) -> None:
        logger.error(
            "%s-%d is not compacted until a restart: %s",
            partition.topic,
            partition.index,
            reason,
            extra=event("compaction_disabled", topic=partition.topic, partition=partition.index),
        )
        self.uncleanable.add(partition)

    # Cleaning

    async def _work(self, partition: Partition, log: CleanableLog) -> None:
        """Run one helper, which cleans log after log while any is due."""
        try:
            child = await self._processes.start(HELPER)
        except OSError as error:
            self._in_progress.discard(partition)
            if is_shortage(error):
                self._note_shortage(error)
                return
            logger.error(
                "cannot start a helper for compaction: %s",
                error,
                extra=event("helper_start_failed"),
            )
            return
        following: tuple[Partition, CleanableLog] | None = (partition, log)
        try:
            while following is not None:
                await self._clean(child, *following)
                following = self._choose()
        except (_RoundAbandoned, _HelperDied):
            return
        finally:
            # Discarded before the await: a worker that is cancelled again must not block the log.
            if following is not None:
                self._in_progress.discard(following[0])
            await child.end()

    async def _clean(self, child: Child, partition: Partition, log: CleanableLog) -> None:
        began = self._clock.monotonic()
        try:
            job = make_job(log, self._clock.wall_ms(), self._limits())
            done = await self._run_job(child, partition, job.encode())
        except _HelperDied:
            self._on_death(partition)
            raise
        if done is not None:
            self._on_done(partition, done, self._clock.monotonic() - began)
        # The helper survived this log, so only deaths in succession exclude a log.
        self._deaths.pop(partition, None)
        self._in_progress.discard(partition)

    def _limits(self) -> CleanerLimits:
        config = self._config()
        threads = max(self._helpers_allowed, 1)
        rate = config.get_float("log.cleaner.io.max.bytes.per.second")
        return CleanerLimits(
            min(config.get_int("log.cleaner.dedupe.buffer.size") // threads, _MAP_BYTES_MAX),
            config.get_float("log.cleaner.io.buffer.load.factor"),
            max(config.get_int("log.cleaner.io.buffer.size") // threads // 2, 1),
            rate / threads,
        )

    async def _run_job(
        self, child: Child, partition: Partition, job: bytes
    ) -> CompactionDone | None:
        """Run a job and swap in its groups; return None if the log has damaged data.

        Raises `_HelperDied`, and `_RoundAbandoned` for any other failure.
        """
        try:
            await child.send(job)
        except OSError:
            raise _HelperDied from None
        while True:
            try:
                answer = decode_answer(await child.receive())
            except (ValueError, KeyError, TypeError):  # nothing, or half a line
                raise _HelperDied from None
            match answer:
                case CleanedGroup() as group:
                    await self._swap(partition, group)
                case CompactionDone() as done:
                    return done
                case CompactionFailed(kind, reason):
                    self._on_failed(partition, kind, reason)
                    return None

    async def _swap(self, partition: Partition, group: CleanedGroup) -> None:
        log = partition.log
        # While the helper worked, retention or a deletion of records may have removed segments.
        if partition.is_retired or not can_swap(log, group):
            raise _RoundAbandoned
        job = begin_swap(log, group)
        try:
            # Shielded: `stop` cancels this task, but nothing can stop the thread between renames;
            # the next start completes or undoes the swap.
            await asyncio.shield(self._tasks.offload("compaction", job.run))
            if partition.is_retired:
                raise _RoundAbandoned
            finish_swap(log, group, self._clock.wall_ms())
        except SwapPutOff as put_off:
            self._note_shortage(put_off.cause)
            raise _RoundAbandoned from put_off
        except OSError as error:
            if not partition.is_retired:
                partition.take_offline(f"cannot rename compacted segments: {error}")
            raise _RoundAbandoned from error
        finally:
            end_swap(log)

    # Results

    def _on_done(self, partition: Partition, done: CompactionDone, busy_s: float) -> None:
        stats, counts = done.stats, self.counts
        counts.rounds += 1
        counts.bytes_read += stats.bytes_read
        counts.bytes_written += stats.bytes_written
        self._directory.cleaner_offsets[partition.topic, partition.index] = done.end_offset
        self._checkpoint()
        logger.info(
            "compaction: %s-%d up to offset %d in %.1f s: %d to %d bytes, %d to %d records",
            partition.topic,
            partition.index,
            done.end_offset,
            busy_s,
            stats.bytes_read,
            stats.bytes_written,
            stats.records_read,
            stats.records_written,
            extra=event(
                "log_compacted",
                topic=partition.topic,
                partition=partition.index,
                end_offset=done.end_offset,
                duration_s=busy_s,
            ),
        )

        if stats.unreadable_batches:
            logger.warning(
                "compaction: %s-%d: kept batches whose records cannot be decoded: %d",
                partition.topic,
                partition.index,
                stats.unreadable_batches,
                extra=event(
                    "unreadable_batches_kept",
                    topic=partition.topic,
                    partition=partition.index,
                    batches=stats.unreadable_batches,
                ),
            )

    def _on_failed(self, partition: Partition, kind: str, reason: str) -> None:
        if partition.is_retired:
            return
        if kind == "corrupt":
            self._mark_uncleanable(partition, reason)
            return
        if kind == "io":
            # The failure occurred in the helper, so the broker's `Disk` did not note it.
            self._directory.ownership.page_cache.on_failure()
        logger.warning(
            "compaction: %s-%d: %s",
            partition.topic,
            partition.index,
            reason,
            extra=event("compaction_failed", topic=partition.topic, partition=partition.index),
        )
        raise _RoundAbandoned

    def _on_death(self, partition: Partition) -> None:
        self.counts.helper_deaths += 1
        deaths = self._deaths[partition] = self._deaths.get(partition, 0) + 1
        if deaths >= _DEATHS_MAX:
            self._mark_uncleanable(partition, f"{deaths} helpers died while they compacted it")
        else:
            name = f"{partition.topic}-{partition.index}"
            logger.warning(
                "the helper that compacted %s died; trying again later",
                name,
                extra=event("helper_died", topic=partition.topic, partition=partition.index),
            )
