from __future__ import annotations

import json

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.commands.produce import (
    BATCH_BYTES_MAX,
    REQUEST_BYTES_MAX,
    _finish,
    _linger_ms,
    find_target,
    size_hint,
    summary,
)
from lakelog.cli.delivery import Report, WrittenRecords
from lakelog.cli.failures import CliError
from lakelog.cli.main import run
from lakelog.cli.options import CommandSession, Output
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from scripted_broker import ScriptedBroker

_LATE = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer in time")


def _finished(report: Report, form: str = "table") -> int:
    return _finish(report, "orders", 2.0, CommandSession(), Output(format=form))  # type: ignore[arg-type]


def _written(count: int) -> Report:
    return Report(
        records=count, bytes=2 * count, partitions={0: WrittenRecords(count, 5, 4 + count)}
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--linger", "soon"],
        ["--header", "no-value"],
        ["--linger", "5s", "--timeout", "5s"],
    ],
)
def test_a_wrong_option_fails_before_connecting(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["produce", "orders", "-b", "127.0.0.1:1", *options]) == 2
    assert "error[LL0902]" in capsys.readouterr().err


def test_linger_is_shorter_than_the_timeout() -> None:
    """Otherwise each record expires while its batch waits for others."""
    session = CommandSession(timeout="2s")
    assert _linger_ms("1999ms", session) == 1999
    with pytest.raises(CliError, match="--linger 2s is not shorter than --timeout 2s"):
        _linger_ms("2s", session)


def test_a_success_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert _finished(_written(4)) == 0
    shown = capsys.readouterr()
    assert shown.err.strip() == "4 records, 8 B to 'orders' in 2.0 s (2/s)"
    assert not shown.out


def test_an_empty_input_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert _finished(Report()) == 0
    assert "0 records, 0 B to 'orders'" in capsys.readouterr().err


def test_a_failure_of_all_records_is_the_broker_s_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CliError) as error:
        _finished(Report(failed=3, first_error=_LATE))
    assert error.value.code != "LL0604"
    assert not capsys.readouterr().err, "nothing was written, so no line about written records"


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_failure_of_some_records_counts_them(gave_up: bool) -> None:
    report = _written(4)
    report.failed, report.first_error, report.gave_up = 2, _LATE, gave_up
    with pytest.raises(CliError, match=r"^2 of 6 not written: ") as error:
        _finished(report)
    assert error.value.code == "LL0604"
    assert ("the rest of the input was not read" in error.value.message) is gave_up


def test_bad_input_reports_the_records_before_it() -> None:
    """A second run would write these records again."""
    report = _written(1)
    report.bad_input = CliError("LL0601", "line 4: no JSON", "see the format")
    report.failed, report.first_error = 2, _LATE
    with pytest.raises(CliError) as error:
        _finished(report)
    text = error.value.message
    assert text.startswith("line 4: no JSON; 1 record before it written; 2 records before it not ")
    assert (error.value.code, error.value.hint) == ("LL0601", "see the format")


def test_json_has_the_results_of_a_failed_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    report = _written(2)
    report.failed, report.first_error = 1, _LATE
    with pytest.raises(CliError):
        _finished(report, "jsonl")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["records"], shown["failed"], shown["bytes"]) == (2, 1, 4)


def test_partitions_are_listed_in_their_order() -> None:
    report = Report(partitions={10: WrittenRecords(1, 3, 3), 2: WrittenRecords(2, 0, 1)})
    assert [
        (row["partition"], row["records"], row["first_offset"], row["last_offset"])
        for row in summary(report, "orders").data["partitions"]
    ] == [(2, 2, 0, 1), (10, 1, 3, 3)]


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
