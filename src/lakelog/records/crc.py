"""CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots."""

from __future__ import annotations

import crc32c as _native

from lakelog.runtime.api import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of `data`, continued from `value`; memoryviews are not copied."""
    return int(_native.crc32c(data, value))
