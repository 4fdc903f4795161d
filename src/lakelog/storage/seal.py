"""A seal that shows whether another program has changed the data folder since its last process.

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
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lakelog.base.events import event
from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.storage.files import read_if_exists

_logger = logging.getLogger(__name__)

FOLDER_SEAL = "folder-seal"
_HEAD = b"lakelog folder-seal 1 %08x\n"
_HEAD_SIZE = len(_HEAD % 0)
_NONE = "-"


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
        body = "".join(f"{line}\n" for line in sealed).encode()
        self._disk.write_atomic(self.path, _HEAD % crc.crc32c(body) + body)


def _checksum(data: bytes) -> str:
    return f"{crc.crc32c(data):08x}"


def _decoded(data: bytes) -> _Sealed | None:
    """Return the lines of the file, None if it is damaged."""
    body = data[_HEAD_SIZE:]
    if data[:_HEAD_SIZE] != _HEAD % crc.crc32c(body):
        return None
    return _Sealed(*body.decode().splitlines())
