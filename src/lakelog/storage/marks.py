"""The marks of a data folder, which say that nothing is missing since its last process.

# Page cache: `boot-id`

The file names the page cache (`Disk.page_cache_id`), which may still have the unsynced writes of an
earlier process: after `kill -9` it does, after a power failure it does not. The file exists only
while no loss is known: a start removes it before it changes any log, and writes it once it has
noted all losses. The first write or sync that fails removes it until the next start, because the
kernel drops pages that it could not write. A missing, damaged or different file counts as a power
failure.

The second line is the broker epoch of the process that wrote the file. It shows whether a later
process of the same broker has run elsewhere meanwhile (KIP-966). The third line says that this
process has sealed the folder: a folder without its seal was changed then.

# Power failure: `durable-topics`

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

# Changes by other programs: `folder-seal`

The marks of a folder say that nothing is missing: `.kafka_cleanshutdown` after a clean stop,
`boot-id` after a kill, `durable-topics` after a power failure. A restore of older files may leave
these marks in place. So the file `folder-seal` identifies the file `known-logs`, which every
checkpoint replaces, and the marks count only while both fit together.

    lakelog folder-seal 1 <CRC-32C of the following lines, 8 hexadecimal digits>
    running                                               (or: stopped)
    <CRC-32C of known-logs> <inode> <change time>         (or `-` before the first one)
    <CRC-32C and inode of the file that is to replace it> (or `-`)

A folder without a seal is of an older version, unless its `boot-id` says that the last process has
sealed it. A seal without a `known-logs` is of the first start, unless `boot-id` says that this
start was complete. No restored `known-logs` has the same inode and change time. They count unless
the last process stopped cleanly: a folder may be moved between a stop and a start. The rollback of
a whole file system or device restores the seal, too, and is not noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lakelog.base.events import event
from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists, remove_durably, sync_file

_logger = logging.getLogger(__name__)

BOOT_ID = "boot-id"
_SEALED = b"sealed\n"
DURABLE_TOPICS = "durable-topics"
_DURABLE_HEAD = b"lakelog durable-topics 1 %08x\n"
FOLDER_SEAL = "folder-seal"
_SEAL_HEAD = b"lakelog folder-seal 1 %08x\n"
_NONE = "-"


def with_checksum(head: bytes, body: bytes) -> bytes:
    """Return `body` behind a first line that `head` makes with the CRC-32C of `body`."""
    return head % crc.crc32c(body) + body


def checked_body(head: bytes, data: bytes) -> bytes | None:
    """Return the lines behind the first one; None if the first one does not fit them."""
    body = data[len(head % 0) :]
    return body if data == with_checksum(head, body) else None


def _encode_lines(head: bytes, lines: Iterable[str]) -> bytes:
    return with_checksum(head, "".join(f"{line}\n" for line in lines).encode())


class PageCacheMark:
    """The file `boot-id` of one data folder.

    The id is derived from `lock`, the folder's lock file: a copy of the folder has another id.
    """

    def __init__(self, folder: Path, disk: Disk, lock: Path) -> None:
        self.path = folder / BOOT_ID
        self._disk = disk
        self._lock = lock
        self.has_failed = False
        """Whether a write or sync of this process has failed for another reason than a shortage."""

    def find(self) -> int | None:
        """Return the broker epoch of the last process if it wrote to the same page cache.

        -1 stands for an unknown epoch, None for another page cache.
        """
        try:
            content = (read_if_exists(self._disk, self.path) or b"").removesuffix(_SEALED)
            page_cache, end, epoch = content.partition(b"\n")
            if not end or page_cache != self._present():
                return None
            return int(epoch) if epoch.endswith(b"\n") and epoch[:-1].isdigit() else -1
        except OSError as error:
            _logger.warning(
                "%s cannot be compared with the kernel's: %s; an unclean stop counts as a power "
                "failure",
                self.path,
                error,
                extra=event("boot_id_ignored", path=self.path),
            )
            return None

    def names_seal(self) -> bool:
        """Return whether the process that wrote the file has sealed the folder, or may have."""
        try:
            return (read_if_exists(self._disk, self.path) or b"").endswith(b"\n" + _SEALED)
        except OSError:  # `find` logs it
            return True

    def write(self, broker_epoch: int) -> None:
        """Write the id of the present page cache, durably, unless a write has failed before.

        A failure is only logged: without the file the next start assumes the worst.
        """
        try:
            if not self.has_failed:
                content = self._present() + b"\n%d\n" % broker_epoch + _SEALED
                self._disk.write_atomic(self.path, content)
            if self.has_failed:  # meanwhile, in another thread
                self.remove()
        except OSError as error:
            _logger.warning(
                "%s cannot be written: %s; an unclean stop will count as a power failure",
                self.path,
                error,
                extra=event("boot_id_ignored", path=self.path),
            )

    def remove(self) -> None:
        """Remove the file, durably. Raises `OSError`."""
        remove_durably(self._disk, self.path)

    def on_failure(self) -> None:
        """Remove the file until the next start: cached pages may never reach the device.

        `Disk` calls it for failures that it sees; others call it themselves, also in a thread.
        """
        if self.has_failed:
            return
        self.has_failed = True
        try:
            self.remove()
        except OSError as error:
            _logger.error(
                "a write or sync failed, and %s cannot be removed: %s; remove it before the next "
                "start, unless the machine is rebooted",
                self.path,
                error,
                extra=event("boot_id_not_removed", path=self.path),
            )

    def _present(self) -> bytes:
        return self._disk.page_cache_id(self._lock).encode()


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
        body = checked_body(_DURABLE_HEAD, read_if_exists(self._disk, self.path) or b"")
        if body is None:
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
            sync_file(self._disk, self._lock)
            self._has_synced_lock = True
        lines = [
            self._disk.file_id(self._lock),
            " ".join(encode_uuid(process) for process in processes),
            *sorted(encode_uuid(topic_id) for topic_id in topic_ids),
        ]
        self._disk.write_atomic(self.path, _encode_lines(_DURABLE_HEAD, lines))

    def remove(self) -> None:
        """Remove the file, durably. Raises `OSError`."""
        remove_durably(self._disk, self.path)


class _Sealed(NamedTuple):
    """The lines of a seal."""

    state: str
    present: str
    """Checksum and file id of the sealed file."""
    upcoming: str
    """Checksum and inode of the file that is about to replace it."""


class FolderSeal:
    """The seal of one data folder over its file `sealed`."""

    def __init__(self, path: Path, sealed: Path, disk: Disk) -> None:
        self.path = path
        self.sealed = sealed
        self._disk = disk
        self._present = _NONE
        self.is_intact = False
        """Whether no other program has changed the folder since the last process wrote to it."""
        self.is_of_stop = False
        """Whether the sealed file is that of a clean stop, or the folder has no seal."""

    @property
    def is_blank(self) -> bool:
        """Whether the folder has no file yet that the seal could name."""
        return self._present == _NONE

    def open(self, *, is_expected: bool) -> None:
        """Compare the seal with the folder. Raises `OSError`.

        is_expected: whether another file shows that the last process has sealed the folder and
            replaced the sealed file.
        """
        data = read_if_exists(self._disk, self.path)
        content = read_if_exists(self._disk, self.sealed)
        if content is not None:
            self._present = f"{_checksum(content)} {self._disk.file_id(self.sealed)}"
        if data is None and not is_expected:
            # Of an older version, which seals nothing: its marks count as before. Without this, the
            # first start of this version would count every replica as incomplete, and a stopped
            # cluster would have no leaders.
            self.is_intact = self.is_of_stop = True
            return
        stored = _decoded(data or b"")
        if data is not None and stored is None:
            _logger.warning(
                "%s is damaged; recovering all logs",
                self.path,
                extra=event("folder_seal_ignored", path=self.path),
            )
            return
        if stored is not None:
            is_named = self._present == stored.present or self._is(stored.upcoming)
            self.is_intact = is_named and not (self.is_blank and is_expected)
            is_same = stored.present.partition(" ")[0] == self._present.partition(" ")[0]
            self.is_of_stop = stored.state == "stopped" and is_same
        if not (self.is_intact or self.is_of_stop):
            _logger.warning(
                "%s was changed by another program since its last process, as by a restore of a "
                "backup: records that this broker has acknowledged may be missing",
                self.path.parent,
                extra=event("folder_changed", path=self.path.parent),
            )

    def replace(self, data: bytes) -> None:
        """Replace the sealed file, durably; blocks. Raises `OSError`.

        The seal fits at any moment, whichever step is the last before the process is killed.
        """
        checksum = _checksum(data)
        temporary = self.sealed.with_name(self.sealed.name + ".tmp")
        with closing(self._disk.open(temporary, create=True)) as file:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()
            upcoming = f"{checksum} {self._disk.inode(temporary)}"
            self._write(_Sealed("running", self._present, upcoming))
            self._disk.rename(temporary, self.sealed)
            self._disk.sync_dir(self.sealed.parent)
            file.sync()  # the change time, which the seal names, has to survive a power failure
        self._present = f"{checksum} {self._disk.file_id(self.sealed)}"
        self._write(_Sealed("running", self._present, _NONE))

    def begin(self) -> None:
        """Seal the folder as this process has found it. Raises `OSError`."""
        self._write(_Sealed("running", self._present, _NONE))

    def stop(self) -> None:
        """Seal the folder after a clean stop. Raises `OSError`."""
        self._write(_Sealed("stopped", self._present, _NONE))

    def _is(self, upcoming: str) -> bool:
        """Return whether the sealed file is the upcoming file of a seal."""
        checksum = self._present.partition(" ")[0]
        return not self.is_blank and upcoming == f"{checksum} {self._disk.inode(self.sealed)}"

    def _write(self, sealed: _Sealed) -> None:
        self._disk.write_atomic(self.path, _encode_lines(_SEAL_HEAD, sealed))


def _checksum(data: bytes) -> str:
    return f"{crc.crc32c(data):08x}"


def _decoded(data: bytes) -> _Sealed | None:
    """Return the lines of the file, None if it is damaged."""
    body = checked_body(_SEAL_HEAD, data)
    return None if body is None else _Sealed(*body.decode().splitlines())
