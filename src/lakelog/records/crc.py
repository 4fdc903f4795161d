"""CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots.

Use it as `crc.crc32c`: the first call replaces it by the library's own function.
"""

from __future__ import annotations

from typing import Protocol

from lakelog.runtime.api import Buffer


class _Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _import_and_run(data: Buffer, value: int = 0, /) -> int:
    """Import on first use: the package looks up its own version, a tenth of a broker's start."""
    global crc32c
    import crc32c as package

    crc32c = package.crc32c
    return crc32c(data, value)


crc32c: _Checksum = _import_and_run
"""Return the checksum of `data`, continued from `value`; memoryviews are not copied."""
