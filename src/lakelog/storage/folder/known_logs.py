"""`known-logs`: the checkpoints of each log, with a checksum, which Kafka's files do not have.

    lakelog known-logs 2 <CRC-32C of the following lines, 8 hexadecimal digits>
    ["<topic>",<partition>,"<topic id>",<recovery point>,<start>,<high watermark>,<cleaned>,
     [[<leader epoch>,<start>],...],[[<base of a segment>,<CRC-32C of its .txnindex>],...],
     ["<file id of partition.metadata>",<base of the newest segment>,<inode of its .log>]]
    ...                                                                   (one line for each log)

A high watermark or a cleaned offset of -1 is unknown, and so are transaction indexes or files that
are `null`. Leader epochs and transaction indexes describe the log before the recovery point. They
are complete only after a clean stop; recovery finds later ones.

The file is written before the checkpoint files that Apache Kafka reads, and wins if these disagree.
Folders of older versions do not have it, or have version 1, without the files of a log.
To those versions this one looks damaged: they use the checkpoint files.

A restore of a copy may leave a log that is old, and yet reaches its high watermark on the disk.
The file therefore identifies two files of each log:

- `partition.metadata` by inode and change time. The broker writes it once, so it differs if the
  folder was put back, or all files were overwritten.
- The newest segment by its inode. It differs if this file alone was put back. The broker itself
  replaces or removes segments, but only older ones in a compaction, and a truncation leaves an
  older one as the newest. So the inode counts only while the same segment is the newest one. (After
  a truncation another file may get the same base offset within one interval of checkpoints. Then
  the replica only seems to be incomplete.)

Not noticed are a segment that is overwritten in place, and a log younger than the last checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakelog.base.events import event
from lakelog.base.uuids import ZERO_UUID, decode_uuid, encode_uuid
from lakelog.runtime.api import Disk
from lakelog.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    KnownLog,
    LogFiles,
    MalformedCheckpoint,
    RowsFile,
    TopicPartition,
    decode_offsets,
)
from lakelog.storage.files import LOG, PARTITION_METADATA, log_rebuild, read_if_exists
from lakelog.storage.log import Log
from lakelog.storage.marks import checked_body, with_checksum
from lakelog.storage.producers.replay import checksum_of_aborted
from lakelog.storage.segments.segment import Segment


class FilesOfLogs:
    """The files of the logs in one data folder, which are sought once for each new segment."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[TopicPartition, tuple[Segment, LogFiles]] = {}
        self._replaced: set[TopicPartition] = set()
        self.are_new = False
        """Whether a checkpoint has to be written, because the last one has files of a copy."""

    def expect(self, key: TopicPartition, folder: Path, checkpoint: KnownLog) -> None:
        """Compare `partition.metadata` with the checkpoint, before a start may rebuild the file."""
        expected = checkpoint.files
        if expected is not None and expected.metadata != self._metadata(folder):
            self._replaced.add(key)

    def are_replaced(self, key: TopicPartition, log: Log, checkpoint: KnownLog) -> bool:
        """Return whether a log has other files than at its checkpoint.

        Called once for each log, after `expect`.
        """
        expected, present = checkpoint.files, self.of(key, log)
        if expected is None:
            return False
        is_same = key not in self._replaced and _has_segment(expected, present)
        if not is_same or present is None or present.metadata != expected.metadata:
            self.are_new = True
        return not is_same

    def of(self, key: TopicPartition, log: Log) -> LogFiles | None:
        """Return the files of a log, `None` if one is missing or cannot be identified."""
        segment = log.segments.active
        earlier = self._files.get(key)
        if earlier is not None and earlier[0] is segment:
            return earlier[1]
        with suppress(OSError):  # the checkpoint is worth more
            metadata = self._disk.file_id(log.folder / PARTITION_METADATA)
            files = LogFiles(metadata, segment.base_offset, self._disk.inode(segment.path(LOG)))
            self._files[key] = segment, files
            return files
        return None

    def forget(self, key: TopicPartition) -> None:
        """Forget a log that is out of use."""
        self._files.pop(key, None)

    def _metadata(self, folder: Path) -> str | None:
        try:
            return self._disk.file_id(folder / PARTITION_METADATA)
        except FileNotFoundError:
            return None


def _has_segment(expected: LogFiles, present: LogFiles | None) -> bool:
    """Return whether the newest segment is the same file, or another one is the newest."""
    if present is None or present.base != expected.base:
        return True
    return present.inode == expected.inode


KNOWN_LOGS = "known-logs"
_HEAD = b"lakelog known-logs 2 %08x\n"
_HEAD_1 = b"lakelog known-logs 1 %08x\n"
_logger = logging.getLogger(__name__)


KnownLogs = dict[TopicPartition, KnownLog]


def known_logs_file() -> RowsFile[KnownLog]:
    """Return the file without logs."""

    def row(key: TopicPartition, log: KnownLog) -> str:
        fields = [*key, encode_uuid(log.topic_id), *log[1:]]
        return json.dumps(fields, separators=(",", ":")) + "\n"

    return RowsFile(row, lambda rows: with_checksum(_HEAD, "".join(rows).encode()))


def decode_known_logs(data: bytes) -> KnownLogs:
    """Return the logs of a file. Raises `MalformedCheckpoint`."""
    body = checked_body(_HEAD, data)
    if body is None:
        body = checked_body(_HEAD_1, data)
    if body is None:
        raise MalformedCheckpoint("the checksum does not match")
    return dict(_decode(json.loads(line)) for line in body.splitlines())


def _decode(row: list[Any]) -> tuple[TopicPartition, KnownLog]:
    topic, partition, topic_id, point, start, committed, cleaned, epochs, aborted, *files = row
    log = KnownLog(
        decode_uuid(topic_id),
        point,
        start,
        committed,
        cleaned,
        tuple((epoch, first) for epoch, first in epochs),
        None if aborted is None else tuple((base, checksum) for base, checksum in aborted),
        LogFiles(*files[0]) if any(files) else None,
    )
    return (topic, partition), log


def known_of(
    log: Log, high_watermark: int, cleaned: int, files: LogFiles | None = None
) -> KnownLog:
    """Return the checkpoint of a log. Raises `OSError`."""
    point = log.recovery_point
    assert point <= log.log_end_offset
    return KnownLog(
        log.topic_id,
        point,
        log.log_start_offset,
        high_watermark,
        cleaned,
        tuple(entry for entry in log.leader_epochs.entries if entry[1] < point),
        tuple(
            (segment.base_offset, checksum_of_aborted(segment))
            for segment in log.segments
            if segment.txn_index is not None and segment.next_offset <= point
        ),
        files,
    )


class FoundCheckpoints:
    """The checkpoints that a start finds: `known-logs` unless it is damaged, or Kafka's files."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self.logs = self._read_known()
        files = {
            RECOVERY_POINTS: {key: log.recovery_point for key, log in self._entries()},
            LOG_STARTS: {key: log.start for key, log in self._entries() if log.start},
            HIGH_WATERMARKS: {
                key: log.high_watermark for key, log in self._entries() if log.high_watermark >= 0
            },
            CLEANER_OFFSETS: {key: log.cleaned for key, log in self._entries() if log.cleaned >= 0},
        }
        offsets = [self._offsets(name, expected) for name, expected in files.items()]
        self.recovery_points, self.starts, self.high_watermarks, self.cleaned = offsets

    def known_of(self, key: TopicPartition) -> KnownLog:
        """Return the checkpoint of a log; without an entry, nothing is known to be durable."""
        if self.logs is not None and key in self.logs:
            return self.logs[key]
        recovery_point, start = self.recovery_points.get(key, 0), self.starts.get(key, 0)
        return KnownLog(ZERO_UUID, recovery_point, start, aborted=None)

    def _entries(self) -> list[tuple[TopicPartition, KnownLog]]:
        return list((self.logs or {}).items())

    def _read_known(self) -> KnownLogs | None:
        data = read_if_exists(self._disk, self._folder / KNOWN_LOGS)
        if data is None:
            return None
        try:
            return decode_known_logs(data)
        except MalformedCheckpoint as error:
            path = self._folder / KNOWN_LOGS
            _logger.error(
                "%s is damaged: %s; rebuilding it from the other files",
                path,
                error,
                extra=event("file_rebuilt", path=path),
            )
            return None

    def _offsets(self, name: str, expected: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        path = self._folder / name
        data = read_if_exists(self._disk, path)
        try:
            offsets = decode_offsets(data) if data is not None else {}
        except MalformedCheckpoint as error:
            _logger.warning(
                "%s is ignored: %s", path, error, extra=event("file_ignored", path=path)
            )
            return expected
        if self.logs is None:
            return offsets
        if offsets != expected:
            log_rebuild("%s differs from %s; rebuilding it", path, KNOWN_LOGS)
        return expected


def known_logs(
    logs: Mapping[TopicPartition, Log],
    offline: Mapping[TopicPartition, KnownLog],
    high_watermarks: Mapping[TopicPartition, int],
    cleaned: Mapping[TopicPartition, int],
    files: FilesOfLogs,
) -> KnownLogs:
    """Return the checkpoints of all logs, in use and `offline`."""
    checkpoints = {
        key: log._replace(high_watermark=high_watermarks.get(key, -1), cleaned=cleaned.get(key, -1))
        for key, log in offline.items()
    }
    for key, open_log in logs.items():
        committed, end = high_watermarks.get(key, -1), cleaned.get(key, -1)
        checkpoints[key] = known_of(open_log, committed, end, files.of(key, open_log))
    return checkpoints
