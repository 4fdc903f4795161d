"""A data folder: its owner, its logs, and their checkpoints.

    .lock                              held while a process uses the folder
    meta.properties                    cluster, node and folder id
    .kafka_cleanshutdown               exists only between a clean stop and the next start
    recovery-point-offset-checkpoint   up to where each log is on the device
    log-start-offset-checkpoint        where each log starts, unless at 0: a power failure may
                                       restore deleted segments
    replication-offset-checkpoint      each log's high watermark
    cleaner-offset-checkpoint          up to where each log is compacted
    known-logs                         all of these and more, with a checksum
    disk-reserve                       space to start and to free space on a full disk
    boot-id                            the page cache with records that are not on the device
    durable-topics                     topics that a power failure leaves complete
    <topic>-<partition>/               a log; with -delete or -stray at the end a removed one

Source: `LogManager` of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Generator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.events import event
from lakelog.runtime.api import Clock, Disk, Random
from lakelog.storage import files
from lakelog.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CheckpointJob,
    Checkpoints,
    KnownLog,
    TopicPartition,
    encode_epochs,
)
from lakelog.storage.epochs import EpochCache
from lakelog.storage.errors import CorruptLog, LoadInterrupted
from lakelog.storage.folder.closing import Works, close_logs
from lakelog.storage.folder.identity import (
    TopicIdOf,
    encode_partition_metadata,
    is_lost,
    no_topic,
    topic_id_in,
)
from lakelog.storage.folder.known_logs import (
    FilesOfLogs,
    FoundCheckpoints,
    known_logs,
    known_logs_file,
)
from lakelog.storage.folder.ownership import Ownership
from lakelog.storage.folder.space import Deletions, DiskSpaceGuard
from lakelog.storage.loader import EPOCH_END, LoadRequest, LogLoader, Recovery
from lakelog.storage.log import Log
from lakelog.storage.producers.limit import ProducerLimit
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.segments.handles import MAX_OPEN_DEFAULT, HandleCache
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList

_logger = logging.getLogger(__name__)

STRAY_KEPT_DAYS = 7
"""For which the records of unknown topics are kept: the metadata may be wrong."""
_STRAY_KEPT_MS = STRAY_KEPT_DAYS * 86_400_000


class LoadProgress(NamedTuple):
    """How far the logs of a folder have been opened."""

    opened: int
    total: int
    current: str
    """The log that is being opened, as TOPIC-PARTITION; empty before the first."""


class LogDirectory:
    """One data folder, from `open` to `close`. `logs` are the live ones."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        clock: Clock,
        random: Random,
        *,
        max_open_files: int = MAX_OPEN_DEFAULT,
        producers: ProducerLimit | None = None,
    ) -> None:
        self.path = path
        self._disk, self._clock, self._random = disk, clock, random
        self.handles = HandleCache(disk, max_open_files)
        self.producers = producers or ProducerLimit()
        self.space_guard = DiskSpaceGuard()
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, CorruptLog] = {}
        """Logs that are offline because durable data is missing or wrong."""
        self.recoveries: dict[TopicPartition, Recovery] = {}
        """What recovery did to each log that it scanned."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.ownership = Ownership(path, disk)
        self.deletions = Deletions(disk)
        self.strays = Deletions(disk)
        """Directories of unknown topics, which also a full disk does not remove early."""
        self._has_checkpoints = False  # whether the checkpoints have been read
        self.progress = LoadProgress(0, 0, "")
        """Of `load_logs`; read by another thread."""
        self._loaded = self._has_strays = self._interrupted = self._has_lost_ids = False
        self._offline: dict[TopicPartition, KnownLog] = {}
        self._checkpoints = Checkpoints(disk, path, self.ownership.seal)
        self._known_logs = known_logs_file()
        self._files = FilesOfLogs(disk)
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        """Up to where each log is compacted."""

    @property
    def clean(self) -> bool:
        """Whether the last process that used the folder stopped cleanly."""
        return self.ownership.clean

    @property
    def has_lost(self) -> bool:
        """Whether anything that was written before this start may be missing from the logs.

        Known once they are loaded. A process that was killed has lost nothing if the page cache is
        the same, and recovery found each log whole without reading it from the device.
        """
        is_whole = all(recovery.is_whole for recovery in self.recoveries.values())
        if self.clean:
            return not is_whole
        return not (self.ownership.cached and is_whole) or bool(self.failed) or self._has_lost_ids

    @property
    def keeps_page_cache(self) -> bool:
        """Whether the page cache, or a clean stop, has kept all that the last process wrote."""
        return self.clean or self.ownership.cached

    def open(self, cluster_id: str | None, node_id: int) -> None:
        """Lock the folder and check that it is this node's; create a missing one.

        With a `cluster_id` of `None`, the folder's is used, or a new one. Raises `DirectoryInUse`,
        `WrongDirectory` or `OSError`; the lock is then free again.
        """
        self.ownership.take(self._random, cluster_id, node_id)

    # Loading

    def load_logs(
        self,
        configs: Callable[[str, bytes], LogConfig],
        known_topic_ids: Container[bytes],
        id_of: TopicIdOf = no_topic,
        epoch_of: Callable[[bytes, int], int] = lambda topic_id, partition: EPOCH_END,
    ) -> dict[TopicPartition, Log]:
        """Open every log of a known topic; recover them all after an unclean stop.

        `epoch_of` returns the end, exclusive, of the leader epochs that a partition can have had.
        Directories of unknown topics become `-stray` for `STRAY_KEPT_DAYS`. Unusable logs are in
        `failed`. Raises `LoadInterrupted` after `interrupt`, and `OSError`.
        """
        # Before the first change: a crash while loading must count as an unclean stop.
        self.ownership.disclaim_clean()
        loader = LogLoader(
            self.handles,
            now_ms=self._clock.wall_ms(),
            random_below=self._random.below,
            producers=self.producers,
            breathe=self._check_interrupted,
        )
        folders = self._find_logs()
        for number, (key, folder) in enumerate(folders):
            self._check_interrupted()
            self.progress = LoadProgress(number, len(folders), f"{key[0]}-{key[1]}")
            topic_id = self._topic_id(key, folder, id_of(key[0]))
            if topic_id is None:
                continue
            if topic_id not in known_topic_ids:
                self._mark_stray(key, folder)
                continue
            config = configs(key[0], topic_id)
            checkpoint = self._offline[key]
            # A checkpoint of a deleted topic of the same name must not apply to the new log.
            if not checkpoint.is_of(topic_id):
                self._forget(key)
            checkpoint = self._offline[key] = checkpoint.as_of(topic_id)
            epoch_end = epoch_of(topic_id, key[1])
            compacted = "compact" in config.cleanup_policy or key in self.cleaner_offsets
            request = LoadRequest(
                *key, topic_id, config, folder, self.clean, checkpoint, epoch_end, compacted
            )
            self._load(loader, request)
        self._loaded = True
        # The recovery points of strays must not apply to new logs of their names. A restore or move
        # that this start has found must not count again after a kill.
        if self._has_strays or self._files.are_new:
            self.write_checkpoints()
        elif self.ownership.seal.is_blank:  # without a file to name it would fit any older folder
            self.ownership.seal.replace(self._known_logs.encode(self._present_logs()))
        return self.logs

    def _find_logs(self) -> list[tuple[TopicPartition, Path]]:
        """Return every log in the folder, after reading the checkpoints."""
        checkpoints = FoundCheckpoints(self._disk, self.path)
        self.high_watermarks = checkpoints.high_watermarks
        self.cleaner_offsets = checkpoints.cleaned
        folders = []
        for name in self._disk.list(self.path):
            folder, key = self.path / name, files.parse_dir_name(name)
            # A stop came before their removal was due.
            if name.endswith(files.DELETE_DIR) and self._disk.is_dir(folder):
                self.deletions.add(folder)
            if name.endswith(files.STRAY_DIR) and self._disk.is_dir(folder):
                if files.is_foreign(self._disk, folder):
                    self._leave_foreign(folder)
                else:
                    self._keep_stray(folder)
            if key is None or not self._disk.is_dir(folder):
                continue
            self._offline[key] = checkpoint = checkpoints.known_of(key)
            self._files.expect(key, folder, checkpoint)
            folders.append((key, folder))
        self._has_checkpoints = True
        return folders

    def interrupt(self) -> None:
        """End loading soon; may be called from another thread."""
        self._interrupted = True

    def _check_interrupted(self) -> None:
        if self._interrupted:
            raise LoadInterrupted("the broker was stopped while it opened its logs")

    def _load(self, loader: LogLoader, request: LoadRequest) -> None:
        key = request.topic, request.partition
        try:
            log, recovery = loader.load(request)
        except CorruptLog as error:
            self._take_offline(key, error)
            return
        self._use(key, log)
        del self._offline[key]
        self._compare_watermark(key, log, recovery)
        self._compare_files(key, log, request.checkpoint, recovery)
        if recovery.segments_scanned or not recovery.is_whole:
            self.recoveries[key] = recovery
        for reason in recovery.reasons:
            _logger.warning(
                "%s-%d was cut at offset %d: %s",
                *key,
                log.log_end_offset,
                reason,
                extra=event(
                    "log_truncated",
                    topic=key[0],
                    partition=key[1],
                    log_end_offset=log.log_end_offset,
                ),
            )

    def _take_offline(self, key: TopicPartition, error: CorruptLog) -> None:
        _logger.error(
            "%s-%d is offline: %s",
            *key,
            error,
            extra=event("partition_offline", code="LL0304", topic=key[0], partition=key[1]),
        )
        self.failed[key] = error

    def _compare_watermark(self, key: TopicPartition, log: Log, recovery: Recovery) -> None:
        """Note whether a log lacks records below its high watermark, as after a restore of it."""
        committed = self.high_watermarks.get(key, -1)
        if committed > log.log_end_offset:
            self.high_watermarks[key] = log.log_end_offset
            if self.keeps_page_cache:
                recovery.reasons.append(f"records below its high watermark {committed} are missing")

    def _compare_files(
        self, key: TopicPartition, log: Log, checkpoint: KnownLog, recovery: Recovery
    ) -> None:
        """Note whether a log was restored, also from a copy that reaches its high watermark."""
        # After a clean stop the folder may be moved, and no log is shorter than its recovery point.
        if not self._files.are_replaced(key, log, checkpoint) or self.clean:
            return
        # Without a mark the whole folder counts as incomplete, as a copy of it does.
        if not self.keeps_page_cache and self.ownership.durable_mark.find() is None:
            return
        recovery.is_replaced = True
        _logger.warning(
            "%s-%d has other files than at its last checkpoint, as after a restore of a backup: "
            "records that this broker has acknowledged may be missing",
            *key,
            extra=event("log_replaced", topic=key[0], partition=key[1]),
        )

    def _topic_id(self, key: TopicPartition, folder: Path, present: bytes | None) -> bytes | None:
        """Return the id of a log's topic; `None` if the directory is stray or the log offline.

        A power failure soon after the creation may lose the file. No record is lost with it if none
        was written or none was durable; then the directory is stray.
        """
        checkpoint, disk = self._offline[key], self._disk
        try:
            return topic_id_in(disk, folder, checkpoint.topic_id, present)
        except CorruptLog as error:
            if files.is_foreign(disk, folder):
                self._leave_foreign(folder)
                self._forget(key)
            elif files.is_blank(disk, folder):
                self._mark_stray(key, folder)
            elif not self.clean and is_lost(disk, folder, checkpoint, present):
                self._has_lost_ids = True
                self._mark_stray(key, folder)
            else:
                self._take_offline(key, error)
        return None

    def _leave_foreign(self, folder: Path) -> None:
        """Leave a directory of another program, which only has the name of a log."""
        _logger.warning(
            "%s has no files of a log and stays as it is; move it out of the data folder",
            folder,
            extra=event("foreign_folder", path=folder),
        )

    def _mark_stray(self, key: TopicPartition, folder: Path) -> None:
        self._forget(key)
        self._has_strays = True
        now_ms = self._clock.wall_ms()
        target = self.path / files.stray_dir_name(*key, now_ms, self._random.bytes(16).hex())
        _logger.warning(
            "%s belongs to no known topic; keeping it for %d days as %s",
            folder,
            STRAY_KEPT_DAYS,
            target.name,
            extra=event("folder_set_aside", path=target, days=STRAY_KEPT_DAYS),
        )
        # Renamed, not removed: the metadata may be wrong, and the records would be lost.
        self._disk.rename(folder, target)
        self.strays.add(target, now_ms + _STRAY_KEPT_MS)

    def _keep_stray(self, folder: Path) -> None:
        """Remove the directory when its time is over; a name without a time gets the present."""
        now_ms = self._clock.wall_ms()
        since_ms = files.stray_since_ms(folder.name, now_ms)
        if since_ms is None:
            since_ms, source = now_ms, folder
            folder = folder.with_name(files.stray_since_now(folder.name, now_ms))
            self._disk.rename(source, folder)
        self.strays.add(folder, since_ms + _STRAY_KEPT_MS)

    def _forget(self, key: TopicPartition) -> None:
        for entries in (self._offline, self.high_watermarks, self.cleaner_offsets):
            entries.pop(key, None)
        self._files.forget(key)

    # Logs

    def make_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """Create the files of a new log, for `add_log`; may be in a thread.

        Raises `FileExistsError` and `OSError`; no file is left then.
        """
        folder = self.path / files.dir_name(topic, partition)
        if self._disk.exists(folder):
            raise FileExistsError(f"{folder} exists")
        try:
            self.space_guard.check()
            return self._make_log(topic, partition, topic_id, config, folder)
        except OSError:
            # A directory that remained would make every later attempt fail.
            with suppress(OSError):
                self._disk.remove_tree(folder)
            raise

    def _make_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, folder: Path
    ) -> Log:
        self._disk.make_dirs(folder)
        files.replace(
            self._disk, folder / files.PARTITION_METADATA, encode_partition_metadata(topic_id)
        )
        files.replace(self._disk, folder / LEADER_EPOCHS, encode_epochs(()))
        now_ms = self._clock.wall_ms()
        segment = Segment(self.handles, folder, 0, config, created_ms=now_ms).create()
        log = Log(
            topic,
            partition,
            topic_id,
            config,
            SegmentList(folder, self.handles, [segment], created=True),
            self.producers.new_table(),
            ProducerSnapshots(self._disk, folder),
            EpochCache(),
            random_below=self._random.below,
        )
        if config.durability == FSYNC:
            # If a power failure removed the empty log, the broker would seem to have lost records.
            log.flush()
        return log

    def add_log(self, log: Log) -> None:
        """Take a log into use that `make_log` has created."""
        key = log.topic, log.partition
        assert key not in self.logs
        self.cleaner_offsets.pop(key, None)
        self._use(key, log)

    def _use(self, key: TopicPartition, log: Log) -> None:
        log.before_truncate = partial(self._before_truncate, key)
        self.logs[key] = log

    def _before_truncate(self, key: TopicPartition, end: int) -> None:
        """Lower the checkpoints of a log durably to the offset at which it is about to end."""
        # Records that will be written there later have never been compacted.
        if self.cleaner_offsets.get(key, -1) > end:
            self.cleaner_offsets[key] = end
        self.write_checkpoints()

    def schedule_delete(self, log: Log) -> None:
        """Take a log out of use; `deletions` has its directory after the topic's delay.

        After an `OSError` the log is out of use as well, but its directory still exists.
        """
        log.abandon()
        target = self._retire(log.folder, (log.topic, log.partition), log.config)
        log.move_to(target)

    def schedule_delete_failed(self, topic: str, partition: int, config: LogConfig) -> None:
        """Do the same for a log in `failed`."""
        self._retire(self.path / files.dir_name(topic, partition), (topic, partition), config)

    def _retire(self, folder: Path, key: TopicPartition, config: LogConfig) -> Path:
        self._forget(key)
        for logs in (self.logs, self.failed):
            logs.pop(key, None)
        target = self.path / files.retired_dir_name(
            *key, self._random.bytes(16).hex(), files.DELETE_DIR
        )
        # Out of use first: if the rename fails, the log is not served any more.
        self._disk.rename(folder, target)
        self.deletions.add(target, self._clock.wall_ms() + config.file_delete_delay_ms)
        return target

    # Checkpoints

    def begin_checkpoints(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> CheckpointJob:
        """Return a job that writes the checkpoint files that have changed.

        `high_watermarks` contains all logs in use; the entries of other logs are unchanged. Raises
        `OSError`.
        """
        committed = self.high_watermarks
        if high_watermarks is not None:
            offline = {key: offset for key, offset in committed.items() if key in self._offline}
            committed = self.high_watermarks = {**offline, **high_watermarks}
        logs = self._present_logs()
        offsets = {
            RECOVERY_POINTS: {key: log.recovery_point for key, log in logs.items()},
            LOG_STARTS: {key: log.start for key, log in logs.items() if log.start},
            HIGH_WATERMARKS: dict(committed),
            CLEANER_OFFSETS: dict(self.cleaner_offsets),
        }
        return self._checkpoints.begin(offsets, self._known_logs.encode(logs))

    def _present_logs(self) -> dict[TopicPartition, KnownLog]:
        return known_logs(
            self.logs, self._offline, self.high_watermarks, self.cleaner_offsets, self._files
        )

    def write_checkpoints(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Block until all checkpoint files are durable. Raises `OSError`."""
        self.begin_checkpoints(high_watermarks).run()

    # Closing

    def closing(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> Generator[Works, None, None]:
        """Yield the steps of a clean stop, each of which is work that blocks.

        No flush may be under way.

        Every log is made durable, so that the next start scans nothing. The stop is not marked as
        clean if a log is offline or broken, or was not recovered: its recovery point stays, and the
        next start recovers it.
        """
        try:
            if self._has_checkpoints:
                logs = list(self.logs.values())
                closed = yield from close_logs(self._disk, self.path, logs, self.handles.max_open)
                yield [self.begin_checkpoints(high_watermarks).run]
                if closed and not self.failed and (self._loaded or self.clean):
                    # Last: the claim is only true once logs and checkpoints are durable.
                    yield [self.ownership.claim_clean]
        finally:
            self._give_up()

    def close(self, clean: bool = True) -> None:
        """Close the folder; if `clean`, after all the steps of `closing`. Raises `OSError`."""
        if not clean:
            self._give_up()
            return
        with closing(self.closing()) as steps:
            for works in steps:
                for work in works:
                    work()

    def _give_up(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self.ownership.release()
