from __future__ import annotations

import errno
from pathlib import Path

import pytest

import lakelog
from lakelog.base.errors import ErrorCode
from lakelog.base.shortage import OutOfCapacityError, is_shortage, lacks_descriptors, no_space


@pytest.mark.parametrize(
    ("number", "short", "descriptors"),
    [
        (errno.ENOSPC, True, False),
        (errno.EDQUOT, True, False),
        (errno.EMFILE, True, True),
        (errno.ENFILE, True, True),
        (errno.EIO, False, False),
        (errno.EROFS, False, False),
    ],
)
def test_only_shortages_are_temporary(number: int, short: bool, descriptors: bool) -> None:
    error = OSError(number, "text")
    assert (is_shortage(error), lacks_descriptors(error)) == (short, descriptors)


def test_other_exceptions_are_no_shortage() -> None:
    assert not is_shortage(None)
    assert not is_shortage(ValueError())


def test_a_shortage_is_returned_as_a_retriable_error() -> None:
    error = OutOfCapacityError(no_space("file"))
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert error.code.retriable
    assert "No space left" in error.message
    assert "file" not in error.message, "a peer must not learn paths"


def test_no_module_names_a_full_disk_without_an_exceeded_quota() -> None:
    """Stand-ins for a disk and for SQLite's own files raise or know one of them."""
    source = Path(lakelog.__file__).parent
    named = [
        path
        for path in source.rglob("*.py")
        if "errno.ENOSPC" in path.read_text(encoding="utf-8")
        and path.relative_to(source).parts[0] != "testing"
    ]
    assert [path.name for path in named] == ["shortage.py"]
