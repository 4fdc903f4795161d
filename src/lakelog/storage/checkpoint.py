"""Checkpoint files: text with an offset for each log, or for each leader epoch of a log.

    0                     version
    2                     number of lines that follow
    topic-a 0 1234        topic, partition, offset   (or: leader epoch, start offset)
    topic-a 1 99

A `KnownLog` is the checkpoint of one log, which is known before its directory is opened.

Source: `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile` of
`org.apache.kafka`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from lakelog.base.uuids import ZERO_UUID
from lakelog.runtime.api import Disk
from lakelog.storage.marks import FolderSeal

TopicPartition = tuple[str, int]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

_VERSION = "0"
V = TypeVar("V")


class MalformedCheckpoint(ValueError):  # noqa: N818 - a state of the file
    """The file is damaged; its values must be found in the logs."""


class RowsFile(Generic[V]):
    """The content of a file with a row for each log, which `row` makes and `whole` joins.

    Rows are kept from one write to the next, because few of thousands of logs change between.
    """

    __slots__ = ("_data", "_row", "_rows", "_values", "_whole")

    def __init__(
        self, row: Callable[[TopicPartition, V], str], whole: Callable[[Iterable[str]], bytes]
    ) -> None:
        self._row = row
        self._whole = whole
        self._values: dict[TopicPartition, V] = {}
        self._rows: dict[TopicPartition, str] = {}
        self._data = whole(())

    def encode(self, values: dict[TopicPartition, V]) -> bytes:
        """Return the file; the caller does not change `values` afterwards."""
        before, rows = self._values, self._rows
        if values != before:
            self._rows = {
                key: rows[key] if before.get(key) == value else self._row(key, value)
                for key, value in values.items()
            }
            self._data, self._values = self._whole(self._rows.values()), values
        return self._data


def offsets_file() -> RowsFile[int]:
    """Return a file of offsets, in Kafka's format (`OffsetCheckpointFile`)."""
    return RowsFile(lambda key, offset: f"{key[0]} {key[1]} {offset}", _encode)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets by topic and partition. Raises `MalformedCheckpoint`."""
    offsets = {}
    for line in _lines(data):
        match line.split(" "):
            case [topic, partition, offset]:
                offsets[topic, _whole(partition)] = _whole(offset)
            case _:
                raise MalformedCheckpoint(f"line {line!r} is not topic, partition and offset")
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the content of the file of leader epochs (`LeaderEpochCheckpointFile` of Kafka)."""
    return _encode(f"{epoch} {start}" for epoch, start in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return (epoch, start offset), both strictly rising. Raises `MalformedCheckpoint`."""
    entries: list[tuple[int, int]] = []
    for line in _lines(data):
        epoch, _, start = line.partition(" ")
        entry = _whole(epoch), _whole(start)
        if entries and not (entries[-1][0] < entry[0] and entries[-1][1] < entry[1]):
            raise MalformedCheckpoint(f"epoch {entry} after {entries[-1]}")
        entries.append(entry)
    return entries


def _encode(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "\n".join((_VERSION, str(len(rows)), *rows, "")).encode()


def _lines(data: bytes) -> list[str]:
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise MalformedCheckpoint("the file is not text") from None
    if len(lines) < 3 or lines[0] != _VERSION or lines[-1]:
        raise MalformedCheckpoint("the file has no version 0, no count or no last line end")
    rows = lines[2:-1]
    if _whole(lines[1]) != len(rows):
        raise MalformedCheckpoint(f"{len(rows)} lines where the count is {lines[1]}")
    return rows


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise MalformedCheckpoint(f"{text!r} is not a whole number")
    return int(text)


class Checkpoints:
    """The files of offsets in a data folder, and the file under its `seal`."""

    def __init__(self, disk: Disk, folder: Path, seal: FolderSeal) -> None:
        self._disk = disk
        self._seal = seal
        self._folder = folder
        self._files: dict[str, RowsFile[int]] = {}
        self._written: dict[Path, bytes] = {}

    def begin(
        self, offsets: Mapping[str, dict[TopicPartition, int]], sealed: bytes
    ) -> CheckpointJob:
        """Return a job for the files that have changed.

        `offsets` are by file name; the file under the seal, already encoded, is written first.
        """
        files = {self._seal.sealed: sealed}
        for name, values in offsets.items():
            encoded = self._files.setdefault(name, offsets_file()).encode(values)
            files[self._folder / name] = encoded
        changed = {path: data for path, data in files.items() if self._written.get(path) != data}
        return CheckpointJob(self._disk, self._seal, changed, self._written)


class CheckpointJob:
    """Checkpoint files to be replaced."""

    __slots__ = ("_disk", "_files", "_seal", "_written")

    def __init__(
        self, disk: Disk, seal: FolderSeal, files: dict[Path, bytes], written: dict[Path, bytes]
    ) -> None:
        self._disk = disk
        self._seal = seal
        self._files = files
        self._written = written

    def run(self) -> None:
        """Replace the files, durably; blocks and may be in a thread.

        Raises `OSError`; the next job writes the files that were not replaced.
        """
        for path, data in self._files.items():
            if path == self._seal.sealed:
                self._seal.replace(data)
            else:
                self._disk.write_atomic(path, data)
            self._written[path] = data


class LogFiles(NamedTuple):
    """Files of a log that no copy of it has."""

    metadata: str
    """File id of `partition.metadata`, which the broker writes once."""
    base: int
    """Base offset of the newest segment."""
    inode: int
    """Inode of that segment's `.log` file."""


class KnownLog(NamedTuple):
    """One log when the checkpoint was written. Unknown offsets are -1."""

    topic_id: bytes
    recovery_point: int
    start: int = 0
    high_watermark: int = -1
    cleaned: int = -1
    epochs: tuple[tuple[int, int], ...] = ()
    aborted: tuple[tuple[int, int], ...] | None = ()
    """Bases and checksums of the transaction indexes below the recovery point; `None` if unknown.
    """
    files: LogFiles | None = None
    """`None` if unknown, as in a checkpoint of an older version."""

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether it is of this topic, or of an unknown one."""
        return self.topic_id in (ZERO_UUID, topic_id)

    def as_of(self, topic_id: bytes) -> KnownLog:
        """Return it for a log of this topic; a blank one if an older topic had the name."""
        if self.is_of(topic_id):
            return self._replace(topic_id=topic_id)
        return KnownLog(topic_id, 0, 0)
