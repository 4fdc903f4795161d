from __future__ import annotations

import json

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.commands.produce import _finish, _linger_ms, summary
from lakelog.cli.failures import CliError
from lakelog.cli.main import run
from lakelog.cli.options import CommandSession, Output
from lakelog.cli.records.delivery import Report, WrittenRecords

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
