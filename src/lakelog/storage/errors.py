"""Errors of stored data.

An `OSError` is never wrapped: its owner takes the whole data folder offline. A damaged partition is
taken offline alone.
"""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """The data folder or a log in it cannot be used; the text says what to do about it."""


class CorruptLog(StorageError):  # noqa: N818 - as CorruptRecord
    """Bytes that were known to be on the device are missing or wrong: corrupt is not absent."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DirectoryInUse(StorageError):  # noqa: N818 - a state of the folder
    """Another process holds the lock of the data folder."""


class WrongDirectory(StorageError):  # noqa: N818 - a state of the folder
    """`meta.properties` names another cluster or node, or cannot be read."""


class LoadInterrupted(StorageError):  # noqa: N818 - an event, not an error
    """The process was asked to stop before it had opened its logs."""
