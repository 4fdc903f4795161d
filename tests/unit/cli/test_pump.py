"""Copies records, and commits the offsets of written ones."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from consumed_log import KEY, ConsumedLog, copied
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli import pump
from lakelog.cli.interaction import Stop
from lakelog.cli.pump import GroupProgress, Pump
from lakelog.cli.record_text import formatter
from lakelog.client.consumer import Consumer, ConsumerRecord
from lakelog.client.consumer.fetcher import Trouble
from lakelog.client.errors import ConnectionLostError


def test_a_signal_while_joining_commits_the_written_records() -> None:
    class Signalled(ConsumedLog):
        def poll(self, timeout_s: float, max_records: int) -> Sequence[ConsumerRecord]:
            assert self.stop is not None
            if self._next == 4:
                with self.stop.interrupting():
                    self.stop.signalled(signal.SIGINT)
            return super().poll(timeout_s, max_records)

    source = Signalled(10)
    assert copied(source, has_group=True) == b"0\n1\n2\n3\n"
    assert source.committed == [{KEY: 4}]
    assert source.stop is not None
    assert source.stop.exit_status == 130


def test_an_answer_that_does_not_come_after_a_signal_is_no_error() -> None:
    class Failing(ConsumedLog):
        def poll(self, timeout_s: float, max_records: int) -> Sequence[ConsumerRecord]:
            assert self.stop is not None
            if has_signal:
                self.stop.signalled(signal.SIGTERM)
            raise ConnectionLostError("no answer within 10 s", timed_out=True)

    has_signal = True
    assert copied(Failing(10)) == b""
    has_signal = False
    with pytest.raises(ConnectionLostError):
        copied(Failing(10))


def test_a_run_that_is_to_end_gives_up_on_a_broker_that_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ConsumedLog(0)
    lost = ConnectionLostError("the broker at 127.0.0.1:9 is gone")
    source.trouble = Trouble(lost, time.monotonic() - 60)
    with pytest.raises(TimeoutError, match="is gone") as error:
        copied(source, count=3)
    assert error.value.__cause__ is lost
    assert copied(source) == b""
    assert capsys.readouterr().err.count("retrying") == 2


def test_a_partition_without_a_leader_ends_no_run_while_others_have_records() -> None:
    source = ConsumedLog(9)
    source.trouble = Trouble(ConnectionLostError("no leader"), time.monotonic() - 60)
    assert copied(source, count=9) == b"".join(b"%d\n" % number for number in range(9))


def test_it_stops_after_the_count() -> None:
    assert copied(ConsumedLog(9), count=3) == b"0\n1\n2\n"
    assert copied(ConsumedLog(9), count=0) == b""


def test_it_stops_at_the_end() -> None:
    assert copied(ConsumedLog(3), ends={KEY: 3}) == b"0\n1\n2\n"
    assert copied(ConsumedLog(3, has_gap_at_end=True), ends={KEY: 4}) == b"0\n1\n2\n"
    assert copied(ConsumedLog(0), ends={KEY: 0}) == b""


def test_it_stops_on_a_signal() -> None:
    assert copied(ConsumedLog(3)) == b"0\n1\n2\n"


def test_what_could_not_be_written_is_not_committed() -> None:
    class _Closed(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    source = ConsumedLog(4)
    with pytest.raises(BrokenPipeError):
        copied(source, has_group=True, stream=_Closed())
    assert source.committed == []


def test_a_stream_that_takes_a_part_gets_the_rest() -> None:
    class _Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(data[:3])

    assert copied(ConsumedLog(9), count=9, stream=_Slow()) == b"".join(
        b"%d\n" % n for n in range(9)
    )


def test_a_run_that_continues_reports_the_end_once(capsys: pytest.CaptureFixture[str]) -> None:
    stop, source = Stop(), ConsumedLog(3)
    source.stop = stop
    pump = Pump(
        cast(Consumer, source),
        io.BytesIO(),
        formatter("%o"),
        None,
        patience_s=5.0,
        check_output=lambda: None,
        waiting="waiting",
    )
    pump.run(None, {KEY: 3}, stop, exit_at_end=False)
    assert capsys.readouterr().err == "waiting\n"


def test_a_group_commits_only_the_printed_records() -> None:
    source = ConsumedLog(9)
    copied(source, count=3, has_group=True)
    assert source.committed == [{KEY: 3}]
    alone = ConsumedLog(9)
    copied(alone, count=3)
    assert alone.committed == []


def test_a_long_run_commits_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_COMMIT_EVERY_S", 0.0)
    source = ConsumedLog(4)
    copied(source, ends={KEY: 4}, has_group=True)
    assert source.committed == [{KEY: 2}, {KEY: 4}]


def test_a_group_that_moved_on_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    source = ConsumedLog(2)
    source.error = KafkaError(ErrorCode.ILLEGAL_GENERATION)
    copied(source, count=2, has_group=True)
    assert "will read the last records" in capsys.readouterr().err
    source = ConsumedLog(2)
    source.error = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        copied(source, count=2, has_group=True)


def test_printed_records_are_committed_before_their_partition_is_revoked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ConsumedLog(6)
    source.rebalance_at = 4
    assert copied(source, ends={KEY: 6}, has_group=True) == b"0\n1\n2\n3\n4\n5\n"
    assert source.committed == [{KEY: 4}, {KEY: 6}]
    assert capsys.readouterr().err == ""


def test_records_repeated_after_a_rebalance_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ConsumedLog(6)
    source.rebalance_at = 4
    source.error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    printed = copied(source, ends={KEY: 6}, has_group=True)
    assert printed == b"0\n1\n2\n3\n0\n1\n2\n3\n4\n5\n"
    assert capsys.readouterr().err.splitlines() == [
        "the group has rebalanced: members will read the last records of orders-0 again",
        "orders-0: printed again after a rebalance: offsets 0 to 3",
        "the group has rebalanced: members will read the last records of orders-0 again",
    ]


def test_a_commit_refused_in_a_rebalance_is_made_up_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ConsumedLog(2)
    progress = GroupProgress(cast(Consumer, source), quiet=False)
    monkeypatch.setattr(pump, "_COMMIT_EVERY_S", 0.0)
    progress.commit_if_due()
    progress.wrote(source.poll(0, 2))
    source.error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    progress.commit_if_due()
    source.error = None
    progress.revoke()
    assert source.committed == [{KEY: 2}]
    assert capsys.readouterr().err == ""


def test_the_start_of_a_partition_is_committed_too() -> None:
    source = ConsumedLog(0)
    copied(source, has_group=True)
    assert source.committed == [{KEY: 0}]
