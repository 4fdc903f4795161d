"""How far the metadata log has been committed, beside it: 24 bytes in `metadata.db-end`.

    0 index of the next entry u64   8 controller epoch u64   16 CRC-32 of that u32   20 zero

SQLite takes a damaged frame of its journal, and all that follow, for the torn end of the journal: a
flipped bit would silently take back what was acknowledged. So the file is compared with this. It
is written after each commit and never synced; what a power failure leaves of it may be old, which
says less, but nothing wrong.
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
    """Replaces the content in place, whatever it was."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, os.write(descriptor, encode_note(end, controller_epoch)))
    finally:
        os.close(descriptor)


def encode_note(end: int, controller_epoch: int) -> bytes:
    head = struct.pack(">QQ", end, controller_epoch)
    return head + struct.pack(">II", zlib.crc32(head), 0)


def read_committed(path: Path) -> tuple[int, int]:
    """(0, 0) if nothing is known."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    return decode_note(path, data)


def decode_note(path: Path, data: bytes) -> tuple[int, int]:
    """(0, 0) for what is damaged; a line in the log names `path` then."""
    if len(data) == _FORM.size:
        end, epoch, checksum, rest = _FORM.unpack(data)
        if checksum == zlib.crc32(data[:_COVERED]) and not rest:
            return end, epoch
    _logger.warning("%s is damaged; it is made anew", path, extra=event("file_rebuilt", path=path))
    return 0, 0
