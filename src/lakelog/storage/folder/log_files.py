"""Files of logs that another program has put in place since the last checkpoint.

A restore of a copy may leave a log that is old, and yet reaches its high watermark on the disk.
`known-logs` therefore identifies two files of each log:

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

from contextlib import suppress
from pathlib import Path

from lakelog.runtime.api import Disk
from lakelog.storage.checkpoint import TopicPartition
from lakelog.storage.log import Log
from lakelog.storage.names import LOG, PARTITION_METADATA
from lakelog.storage.recovery.known_log import KnownLog, LogFiles
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
