from __future__ import annotations

from pathlib import Path

from lakelog.storage.errors import CorruptLog, StorageError


def test_damage_names_the_file_and_the_byte() -> None:
    """The operator looks there; the partition's error shows it in DescribeLogDirs and the log."""
    path = Path("/data/orders-0/00000000000000000000.log")
    error = CorruptLog(path, 4096, "a batch of 70 bytes is cut off")
    assert isinstance(error, StorageError)
    assert str(error) == f"{path} is corrupt at byte 4096: a batch of 70 bytes is cut off"
    assert (error.path, error.position) == (path, 4096)
