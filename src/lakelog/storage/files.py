"""Names of files and directories, as Apache Kafka gives them, and steps on a disk.

A segment's files are `<base offset, 20 digits><suffix>`; a producer snapshot is named for the
offset it ends before. Directories: `<topic>-<partition>`, `<topic>-<partition>.<32 hex>-delete`
(cut to 255 characters), `<topic>-<partition>.<32 hex>-stray`. The digits of a stray directory begin
with the time of its renaming, as a UUID of version 7 begins with its time.

Source: `org.apache.kafka.storage.internals.log.LogFileUtils` and `UnifiedLog`.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from lakelog.base.events import event
from lakelog.runtime.api import Disk

_logger = logging.getLogger(__name__)

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
"""After a segment file's name: written by a compaction that has not ended."""
SWAP = ".swap"
"""After a segment file's name: about to replace the segments that it was made from."""
CUT = ".cut"
"""`<base offset>.<position>.cut`: bytes that recovery cut off a segment, from that byte on."""
SYNC_FAILED = ".sync-failed"
"""In a log's folder after a failed sync: the page cache may hold pages that the device lost."""

PROBE = ".probe"
"""In the data folder while the broker tests whether it can write again."""

PARTITION_METADATA = "partition.metadata"
"""In a log's folder: the id of its topic."""

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETE_DIR = "-delete"
STRAY_DIR = "-stray"
_NAME_MAX = 255
_UNIQUE_LENGTH, _TIME_LENGTH = 32, 12
_TIME_MS_MIN = 1_500_000_000_000
"""Digits below stand for no time: they were drawn."""


def file_name(offset: int, suffix: str) -> str:
    """Return a segment file's name: the offset in 20 digits and the suffix, as in Kafka."""
    return f"{offset:020d}{suffix}"


def cut_name(base_offset: int, position: int) -> str:
    """Return the name of a file with bytes that recovery truncated at a position (bytes)."""
    return f"{base_offset:020d}.{position}{CUT}"


def offset_of(name: str) -> int | None:
    """Return the offset in the name of a segment's file or snapshot; `None` for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def dir_name(topic: str, partition: int) -> str:
    """Return the name of a log's directory, as in Kafka."""
    return f"{topic}-{partition}"


def parse_dir_name(name: str) -> tuple[str, int] | None:
    """Return topic and partition; `None` for a directory that is no live log."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdecimal()):
        return None
    return topic, int(number)


def retired_dir_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return the name of a deleted log's directory until its removal, or of a stray one.

    A long topic name is cut, because a name has at most 255 bytes.
    """
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: _NAME_MAX - len(tail)] + tail


def stray_dir_name(topic: str, partition: int, now_ms: int, unique: str) -> str:
    """Return the name of a directory that is stray from now on; `unique` has 32 hex digits."""
    assert len(unique) == _UNIQUE_LENGTH
    return retired_dir_name(topic, partition, _stamped(unique, now_ms), STRAY_DIR)


def stray_since_ms(name: str, now_ms: int) -> int | None:
    """Return since when a directory is stray; `None` if its name does not show a time up to now."""
    digits = name.removesuffix(STRAY_DIR).rpartition(".")[2][:_TIME_LENGTH]
    try:
        since_ms = int(digits, 16)
    except ValueError:
        return None
    return since_ms if _TIME_MS_MIN <= since_ms <= now_ms else None


def stray_since_now(name: str, now_ms: int) -> str:
    """Return the name of a stray directory with another time."""
    rest, dot, unique = name.removesuffix(STRAY_DIR).rpartition(".")
    return f"{rest}{dot}{_stamped(unique, now_ms)}{STRAY_DIR}"


def _stamped(unique: str, now_ms: int) -> str:
    return f"{now_ms:0{_TIME_LENGTH}x}{unique[_TIME_LENGTH:]}"


def log_rebuild(text: str, path: Path, *args: object) -> None:
    """Log that a file is made again from other files; `text` takes the path and `args`."""
    _logger.warning(text, path, *args, extra=event("file_rebuilt", path=path))


def read_if_exists(disk: Disk, path: Path) -> bytes | None:
    """Return the content of a file; `None` if it is missing. Raises `OSError`."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def remove_if_exists(disk: Disk, path: Path) -> None:
    """Remove a file unless it is missing. Raises `OSError`."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def remove_durably(disk: Disk, path: Path) -> None:
    """Remove a file, unless it is missing, and its name from the device. Raises `OSError`."""
    if disk.exists(path):
        disk.remove(path)
        disk.sync_dir(path.parent)


def sync_file(disk: Disk, path: Path) -> None:
    """Block until a file is durable. Raises `OSError`."""
    with closing(disk.open(path)) as file:
        file.sync()


def is_blank(disk: Disk, folder: Path) -> bool:
    """Return whether nothing has ever been written to the log in `folder`. Raises `OSError`."""
    logs = [name for name in disk.list(folder) if name.endswith(LOG)]
    return set(logs) <= {file_name(0, LOG)} and not any(disk.size(folder / n) for n in logs)


def is_foreign(disk: Disk, folder: Path) -> bool:
    """Return whether `folder` has files, but no file of a log. Raises `OSError`."""
    names = disk.list(folder)
    # A creation that was broken off may have left the temporary file alone.
    has_log = any(
        name.startswith(PARTITION_METADATA) or offset_of(name) is not None for name in names
    )
    return bool(names) and not has_log


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replace a file so that a killed process leaves the old or the new content. Raises `OSError`.

    Unlike `Disk.write_atomic` it does not sync, so a power failure may leave anything.
    """
    disk.rename(write_aside(disk, path, data), path)


def write_aside(disk: Disk, path: Path, data: bytes) -> Path:
    """Write a file that will be renamed to `path`, without a sync; return its path.

    If it is not renamed, the next start removes it. Raises `OSError`.
    """
    temporary = path.with_name(path.name + ".tmp")
    with closing(disk.open(temporary, create=True)) as file:
        file.truncate(0)
        file.write_at(0, data)
    return temporary
