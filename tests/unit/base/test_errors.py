from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError, error_code


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
