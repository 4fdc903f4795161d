from __future__ import annotations

import errno
from pathlib import Path

import pytest

import lakelog
from lakelog.base.errors import (
    ErrorCode,
    KafkaError,
    OutOfCapacityError,
    error_code,
    is_shortage,
    lacks_descriptors,
    no_space,
)


@pytest.mark.parametrize("code", ErrorCode)
def test_a_known_code_is_read_from_the_wire(code: ErrorCode) -> None:
    assert error_code(int(code)) is code


@pytest.mark.parametrize("code", [-2, 137, 32_767, -32_768])
def test_a_code_of_a_newer_peer_is_an_unknown_error_without_a_retry(code: int) -> None:
    assert error_code(code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not error_code(code).retriable


def test_codes_are_numbered_without_gaps() -> None:
    """A gap would be a code that this version silently takes to be unknown."""
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True),
        (ErrorCode.NONE, False),
        (ErrorCode.PRODUCER_FENCED, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
    ],
)
def test_a_fenced_or_aborted_client_does_not_retry(code: ErrorCode, retriable: bool) -> None:
    assert code.retriable is retriable


def test_an_error_shows_its_code_and_its_message_once() -> None:
    assert str(KafkaError(ErrorCode.INVALID_RECORD)) == "INVALID_RECORD"
    error = KafkaError(ErrorCode.INVALID_RECORD, "record 3 has no key")
    assert str(error) == "INVALID_RECORD: record 3 has no key"
    assert (error.code, error.message) == (ErrorCode.INVALID_RECORD, "record 3 has no key")


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
    assert [path.name for path in named] == ["errors.py"]
