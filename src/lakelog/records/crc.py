"""CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.runtime.api import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of `data`, continued from `value`; memoryviews are not copied."""
    return _native(data, value)


def crc32c_function() -> Callable[[Buffer, int], int]:
    """Return the library's function, which saves a call for frequent use."""
    return _native


def _import_and_run(data: Buffer, value: int) -> int:
    """Import on first use: the package looks up its own version, a tenth of a broker's start."""
    global _native
    import crc32c as package

    _native = package.crc32c
    return _native(data, value)


_native: Callable[[Buffer, int], int] = _import_and_run
