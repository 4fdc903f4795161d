"""A mark of the topics that a power failure leaves complete, the file `durable-topics`.

    lakelog durable-topics 1 <CRC-32C of the following lines, 8 hexadecimal digits>
    <id of `.lock`: inode and change time>
    <incarnation ids of processes, separated by spaces>
    <topic id>
    ...                                                     (one line for each topic)

The file holds a promise: all records that this broker has reported as written, to a leader or as a
leader, are on the device for each partition of these topics in this folder. The promise covers the
named processes alone. The controller knows the last process of the broker. If another process has
run since, with another folder, this folder is out of date.

A copy of the folder has another `.lock`. A block-level snapshot of the device has the same one: it
is out of date only if the broker was started again since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists

DURABLE_TOPICS = "durable-topics"
_HEAD = b"lakelog durable-topics 1 %08x\n"
_HEAD_SIZE = len(_HEAD % 0)


class DurableTopicsFound(NamedTuple):
    """The content of the file."""

    processes: tuple[bytes, ...]
    """Incarnation ids of the processes for which the promise holds."""
    topic_ids: frozenset[bytes]


class DurableMark:
    """The file of one data folder; `lock` is the folder's lock file."""

    def __init__(self, folder: Path, disk: Disk, lock: Path) -> None:
        self.path = folder / DURABLE_TOPICS
        self._disk = disk
        self._lock = lock
        self._has_synced_lock = False
        self.is_void = False
        """Whether the file of an earlier process does not count: its folder was changed since."""

    def find(self) -> DurableTopicsFound | None:
        """Return the content, None if it is missing, void, damaged or of another folder.

        Raises `OSError`.
        """
        if self.is_void:
            return None
        data = read_if_exists(self._disk, self.path) or b""
        head, body = data[:_HEAD_SIZE], data[_HEAD_SIZE:]
        if head != _HEAD % crc.crc32c(body):
            return None
        folder, processes, *topics = body.decode().splitlines()
        if folder != self._disk.file_id(self._lock):
            return None
        return DurableTopicsFound(
            tuple(decode_uuid(process) for process in processes.split()),
            frozenset(decode_uuid(topic_id) for topic_id in topics),
        )

    def write(self, processes: Sequence[bytes], topic_ids: Iterable[bytes]) -> None:
        """Replace the file, durably. Raises `OSError`; the old file may then still be there."""
        if not self._has_synced_lock:
            # The file names the inode of the lock, which has to survive the failure, too.
            lock = self._disk.open(self._lock)
            try:
                lock.sync()
            finally:
                lock.close()
            self._has_synced_lock = True
        lines = [
            self._disk.file_id(self._lock),
            " ".join(encode_uuid(process) for process in processes),
            *sorted(encode_uuid(topic_id) for topic_id in topic_ids),
        ]
        body = "".join(f"{line}\n" for line in lines).encode()
        self._disk.write_atomic(self.path, _HEAD % crc.crc32c(body) + body)

    def remove(self) -> None:
        """Remove the file, durably. Raises `OSError`."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
            self._disk.sync_dir(self.path.parent)
