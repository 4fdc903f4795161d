from __future__ import annotations

import io

import pytest

from lakelog.base.errors import AddressError, ErrorCode, KafkaError
from lakelog.cli.failures import CliError, explain_exception, report, suggestion
from lakelog.client.errors import (
    OutcomeUnknownError,
    PartitionNotFoundError,
    ProtocolError,
    TopicNotFoundError,
    UnreachableError,
    check_change,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a' exists"), "LL0101"),
        (TopicNotFoundError("ordrs", hint="did you mean 'orders'?"), "LL0102"),
        (PartitionNotFoundError("orders", 9, 3), "LL0104"),
        (ProtocolError("3 bytes left"), "LL0303"),
        (KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), "LL0100"),
        (KafkaError(ErrorCode.FENCED_INSTANCE_ID), "LL0205"),
        (TimeoutError(), "LL0302"),
        (ConnectionRefusedError(111, "Connection refused"), "LL0301"),
        (FileNotFoundError(2, "No such file or directory", "x"), "LL0903"),
        (IsADirectoryError(21, "Is a directory", "x"), "LL0902"),
        (PermissionError(13, "Permission denied", "x"), "LL0903"),
        (AddressError("':::' is not host:port"), "LL0902"),
        (RuntimeError("oops"), "LL0999"),
        (CliError("LL0901", "say so"), "LL0901"),
    ],
)
def test_every_exception_has_a_code(error: Exception, code: str) -> None:
    explained = explain_exception(error)
    assert explained.code == code
    assert explained.message


@pytest.mark.parametrize(("count", "known"), [(1, "only partition 0"), (3, "partitions 0 to 2")])
def test_the_partitions_of_a_topic_are_named(count: int, known: str) -> None:
    message = PartitionNotFoundError("orders", 9, count).message
    assert message == f"topic 'orders' has {known}, not 9"


def test_a_report_is_one_line_and_a_hint() -> None:
    stream = io.StringIO()
    error = explain_exception(TopicNotFoundError("ordrs", hint="did you mean 'orders'?"))
    report(error, stream, color=False)
    assert stream.getvalue() == (
        "error[LL0102] topic 'ordrs' does not exist\nhint: did you mean 'orders'?\n"
    )


def test_a_report_without_hint_points_to_explain() -> None:
    stream = io.StringIO()
    report(CliError("LL0701", "in use"), stream, color=True)
    assert "\x1b[" in stream.getvalue()
    assert stream.getvalue().endswith("hint: lakelog explain LL0701\n")


def test_only_a_near_name_is_suggested() -> None:
    assert suggestion("ordrs", ["orders", "clicks"]) == "did you mean 'orders'?"
    assert suggestion("zebra", ["orders", "clicks"]) == ""


def test_a_longer_timeout_is_advised_only_where_it_helps() -> None:
    with pytest.raises(OutcomeUnknownError) as caught:
        check_change(ErrorCode.REQUEST_TIMED_OUT, "topic 't'", None)
    assert explain_exception(caught.value).hint == (
        "check whether the change has been made before you repeat it."
    )
    no_answer = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer within 5 s")
    assert explain_exception(no_answer).hint == "raise --timeout"


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        (None, "raise --timeout"),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer"), "raise --timeout"),
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full"), ""),
        (UnreachableError("a:1: connection refused"), "is the broker running, and is this"),
    ],
)
def test_a_wait_for_another_cause_has_its_hint(cause: Exception | None, hint: str) -> None:
    error = TimeoutError("no answer for 3 s")
    error.__cause__ = cause
    explained = explain_exception(error)
    assert explained.code == "LL0302"
    assert explained.hint.startswith(hint)
    assert bool(explained.hint) == bool(hint)
