from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.options import CommandSession
from lakelog.cli.records.record_sizes import (
    BATCH_BYTES_MAX,
    REQUEST_BYTES_MAX,
    find_target,
    size_hint,
)
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from scripted_broker import ScriptedBroker

TOO_LARGE = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)


def test_the_hint_allows_the_record_with_its_overhead() -> None:
    hint = size_hint(TOO_LARGE, "orders", 1_000_000)
    assert hint == "run lakelog topic alter orders --config max.message.bytes=1000093 to allow it"


def test_no_setting_of_the_topic_helps_beyond_the_limit_of_a_request() -> None:
    assert "at most" in size_hint(TOO_LARGE, "orders", REQUEST_BYTES_MAX)


def test_a_record_larger_than_a_segment_needs_larger_segments() -> None:
    hint = size_hint(KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE), "orders", 1)
    assert "segment.bytes=N" in hint
    assert size_hint(KafkaError(ErrorCode.INVALID_RECORD), "orders", 1) == ""


def described(value: str | None, error: int = 0) -> DescribeConfigsResponse:
    row = DescribeConfigsResourceResult(name="max.message.bytes", value=value)
    result = DescribeConfigsResult(error_code=error, resource_name="orders", configs=[row])
    return DescribeConfigsResponse(results=[result])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (described("1000"), 1000),
        (described("0"), 1),
        (described(str(1 << 30)), BATCH_BYTES_MAX),
        (described(None), BATCH_BYTES_MAX),
        (described(None, error=29), BATCH_BYTES_MAX),  # the user may only write
    ],
)
def test_a_batch_is_never_larger_than_the_topic_allows(
    response: DescribeConfigsResponse, expected: int
) -> None:
    with ScriptedBroker() as broker:
        broker.on(DescribeConfigsRequest, response)
        assert find_target(CommandSession(brokers=broker.address), "orders").batch_bytes == expected


def test_other_errors_are_raised() -> None:
    with ScriptedBroker() as broker:
        broker.on(DescribeConfigsRequest, described(None, error=42))
        with pytest.raises(KafkaError) as error:
            find_target(CommandSession(brokers=broker.address), "orders")
        assert error.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("topic", "hint"), [("ordrs", "; did you mean 'orders'?"), ("xyz", "")])
def test_a_topic_that_the_first_record_creates_is_noted(topic: str, hint: str) -> None:
    with ScriptedBroker() as broker:
        broker.on(DescribeConfigsRequest, described(None, error=3))
        target = find_target(CommandSession(brokers=broker.address), topic)
    assert target.batch_bytes == BATCH_BYTES_MAX
    assert target.creation == f"created topic '{topic}', which did not exist{hint}"
