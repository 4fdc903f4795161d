from __future__ import annotations

import logging
from itertools import islice

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import errors
from lakelog.client.errors import (
    REASONS,
    ClientError,
    ConnectionLostError,
    LogTruncatedError,
    PartitionNotFoundError,
    ProtocolError,
    TopicNotFoundError,
    UnreachableError,
    UnsupportedError,
    check,
    of_network_client,
    with_reason,
)
from lakelog.network_client import InvalidResponseError, NegotiationError, NoCommonVersionError


def test_a_request_that_was_never_sent_may_be_sent_again_and_a_lost_one_may_not() -> None:
    """The code alone is the same: whether a request may be repeated is in the class."""
    for timed_out in (True, False):
        assert UnreachableError("x", timed_out=timed_out).retriable
        assert not ConnectionLostError("x", timed_out=timed_out).retriable
    assert UnreachableError("x", timed_out=True).code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("error", [TopicNotFoundError("orders"), PartitionNotFoundError("t", 3, 2)])
def test_a_missing_topic_or_partition_is_final(error: ClientError) -> None:
    """The code is retriable, but the client has already asked again."""
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.code.retriable
    assert not error.retriable


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "topic 'orders' has only partition 0, not 7"),
        (6, "topic 'orders' has partitions 0 to 5, not 7"),
    ],
)
def test_a_missing_partition_shows_the_existing_ones(count: int, text: str) -> None:
    assert PartitionNotFoundError("orders", 7, count).message == text


def test_a_cut_log_is_described_with_and_without_the_place() -> None:
    assert "was cut at offset 3, below offset 9" in LogTruncatedError("t", 0, 9, 3).message
    assert "was cut somewhere, below offset 9" in LogTruncatedError("t", 0, 9, -1).message


def test_a_time_limit_gives_no_advice_about_the_address() -> None:
    assert "address" in UnreachableError("refused").hint
    assert UnreachableError("slow", timed_out=True).hint == ""
    late = ConnectionLostError("slow", timed_out=True)
    assert UnreachableError.after(late).code is ErrorCode.REQUEST_TIMED_OUT
    assert UnreachableError.after(ConnectionLostError("reset")).hint


def test_the_text_of_the_broker_replaces_the_reason() -> None:
    check(0, "topic 'orders'")
    with pytest.raises(
        ClientError, match=r"^TOPIC_ALREADY_EXISTS: topic 'orders': already exists$"
    ):
        check(36, "topic 'orders'")
    with pytest.raises(ClientError, match=r"^TOPIC_ALREADY_EXISTS: it exists$"):
        check(36, "topic 'orders'", "it exists")


def test_a_code_of_a_newer_broker_is_an_error() -> None:
    with pytest.raises(ClientError) as error:
        check(9999, "x")
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_errors_of_the_network_client_name_the_peer() -> None:
    broken = of_network_client(InvalidResponseError("1 byte left over"), "h:9092")
    assert isinstance(broken, ProtocolError)
    assert broken.message == "h:9092: 1 byte left over"
    assert isinstance(of_network_client(NoCommonVersionError("Fetch: 1 to 2")), UnsupportedError)
    refused = of_network_client(NegotiationError(ErrorCode.SASL_AUTHENTICATION_FAILED), "h:9092")
    assert refused.message == "h:9092: authentication failed"


def test_a_code_without_a_text_is_described() -> None:
    expected = "group 'billing': the group has members"
    assert with_reason(ErrorCode.NON_EMPTY_GROUP, "group 'billing'") == expected
    assert with_reason(ErrorCode.NON_EMPTY_GROUP, "") == "the group has members"


def test_a_rare_code_appears_by_its_name() -> None:
    assert with_reason(ErrorCode.SNAPSHOT_NOT_FOUND, "x") == "x: SNAPSHOT_NOT_FOUND"


def test_reasons_are_parts_of_a_sentence() -> None:
    """They follow a colon and precede a hint."""
    for code, reason in REASONS.items():
        assert reason[0].islower(), code
        assert not reason.endswith("."), code
    assert ErrorCode.NONE not in REASONS


def test_pauses_double_up_to_a_second_and_never_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "FIRST_S", 0.05)
    assert list(islice(errors.pauses(), 7)) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert errors.pause_s(10_000) == 1.0


def test_a_retry_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        errors.log_retry(UnreachableError("h:9092: connection refused"), 0.2)
    assert "Retrying in 0.20 s" in caplog.text
    assert "connection refused" in caplog.text
