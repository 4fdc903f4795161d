"""The committed end of the metadata log, noted beside it: 24 bytes in `metadata.db-end`.

    0 index of the next entry u64   8 controller epoch u64   16 CRC-32 of that u32   20 zero

SQLite treats a damaged frame of its journal, and all frames after it, as the torn end of the
journal: a flipped bit would silently undo acknowledged commits. At a start the store therefore
compares the end of the log with this note. The note is written after each commit and never synced.
After a power failure it may be old; then it detects less, but it is never wrong.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from pathlib import Path

from lakelog.base.events import event

_FORM = struct.Struct(">QQII")
_COVERED = 16
_logger = logging.getLogger(__name__)


def note_committed(path: Path, end: int, controller_epoch: int) -> None:
    """Write the note in place of the old one. Not durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, os.write(descriptor, encode_note(end, controller_epoch)))
    finally:
        os.close(descriptor)


def encode_note(end: int, controller_epoch: int) -> bytes:
    """Return the 24 bytes of the note.

    The form is at the top of this module.
    """
    head = struct.pack(">QQ", end, controller_epoch)
    return head + struct.pack(">II", zlib.crc32(head), 0)


def read_committed(path: Path) -> tuple[int, int]:
    """Return the noted end and controller epoch, or (0, 0) if there is no valid note.

    Raises `OSError`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    return decode_note(path, data)


def decode_note(path: Path, data: bytes) -> tuple[int, int]:
    """Return the noted end and controller epoch, or (0, 0) and a log line for a damaged note."""
    if len(data) == _FORM.size:
        end, epoch, checksum, rest = _FORM.unpack(data)
        if checksum == zlib.crc32(data[:_COVERED]) and not rest:
            return end, epoch
    _logger.warning(
        "%s is damaged and will be rebuilt", path, extra=event("file_rebuilt", path=path)
    )
    return 0, 0
