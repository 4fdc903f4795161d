from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.commands.consume import waiting_note
from lakelog.cli.main import run
from lakelog.cli.positions import Anchor, Position
from lakelog.cli.records import group_progress
from lakelog.cli.records.group_progress import GroupProgress
from lakelog.cli.records.pump import Pump
from lakelog.cli.records.record_text import Header, formatter
from lakelog.cli.stopping import Stop
from lakelog.client.consumer.fetcher import Trouble
from lakelog.client.errors import ConnectionLostError

_KEY = ("orders", 0)


@dataclass(frozen=True)
class _Record:
    offset: int
    topic: str = "orders"
    partition: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: list[Header] = field(default_factory=list)


class _Source:
    """A log of one partition; each poll returns at most two records and then nothing."""

    def __init__(self, size: int, *, has_gap_at_end: bool = False) -> None:
        self._size = size
        self._next = 0
        self._has_gap_at_end = has_gap_at_end
        self.committed: list[dict[tuple[str, int], int]] = []
        self.error: KafkaError | None = None
        self.stop: Stop | None = None
        self.trouble: Trouble | None = None
        self.on_revoked: Callable[[], None] | None = None
        self.rebalance_at: int | None = None

    @property
    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset({_KEY})

    def poll(self, timeout_s: float, max_records: int) -> Sequence[_Record]:
        if self._next == self.rebalance_at:
            assert self.on_revoked is not None
            self.rebalance_at = None
            self.on_revoked()
            self._next = self.committed[-1][_KEY] if self.committed else 0
        end = min(self._size, self._next + min(2, max_records))
        found = [_Record(offset) for offset in range(self._next, end)]
        self._next = end
        if not found and self.stop is not None:
            self.stop.set()
        return found

    def position(self, partition: tuple[str, int]) -> int:
        at_end = self._next == self._size
        return self._next + (1 if at_end and self._has_gap_at_end else 0)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        if self.error is not None:
            raise self.error
        self.committed.append(dict(offsets))


def _run(
    source: _Source,
    count: int | None = None,
    ends: Mapping[tuple[str, int], int] | None = None,
    *,
    has_group: bool = False,
    stream: io.BytesIO | None = None,
) -> bytes:
    stop = source.stop = Stop()
    printed = stream or io.BytesIO()
    progress = GroupProgress(source, quiet=False) if has_group else None
    source.on_revoked = progress.revoke if progress is not None else None
    pump = Pump(
        source,
        printed,
        formatter("%o\n"),
        progress,
        patience_s=5.0,
        check_output=lambda: None,
        waiting="waiting",
    )
    pump.run(count, ends or {_KEY: 1 << 62}, stop, exit_at_end=ends is not None)
    return printed.getvalue()


def test_a_signal_while_joining_commits_the_written_records() -> None:
    class Signalled(_Source):
        def poll(self, timeout_s: float, max_records: int) -> Sequence[_Record]:
            assert self.stop is not None
            if self._next == 4:
                with self.stop.interrupting():
                    self.stop.signalled(signal.SIGINT)
            return super().poll(timeout_s, max_records)

    source = Signalled(10)
    assert _run(source, has_group=True) == b"0\n1\n2\n3\n"
    assert source.committed == [{_KEY: 4}]
    assert source.stop is not None
    assert source.stop.exit_status == 130


def test_an_answer_that_does_not_come_after_a_signal_is_no_error() -> None:
    class Failing(_Source):
        def poll(self, timeout_s: float, max_records: int) -> Sequence[_Record]:
            assert self.stop is not None
            if has_signal:
                self.stop.signalled(signal.SIGTERM)
            raise ConnectionLostError("no answer within 10 s", timed_out=True)

    has_signal = True
    assert _run(Failing(10)) == b""
    has_signal = False
    with pytest.raises(ConnectionLostError):
        _run(Failing(10))


def test_a_run_that_is_to_end_gives_up_on_a_broker_that_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = _Source(0)
    lost = ConnectionLostError("the broker at 127.0.0.1:9 is gone")
    source.trouble = Trouble(lost, time.monotonic() - 60)
    with pytest.raises(TimeoutError, match="is gone"):
        _run(source, count=3)
    assert _run(source) == b""
    assert capsys.readouterr().err.count("retrying") == 2


def test_it_stops_after_the_count() -> None:
    assert _run(_Source(9), count=3) == b"0\n1\n2\n"
    assert _run(_Source(9), count=0) == b""


def test_it_stops_at_the_end() -> None:
    assert _run(_Source(3), ends={_KEY: 3}) == b"0\n1\n2\n"
    assert _run(_Source(3, has_gap_at_end=True), ends={_KEY: 4}) == b"0\n1\n2\n"
    assert _run(_Source(0), ends={_KEY: 0}) == b""


def test_it_stops_on_a_signal() -> None:
    assert _run(_Source(3)) == b"0\n1\n2\n"


def test_a_group_commits_only_the_printed_records() -> None:
    source = _Source(9)
    _run(source, count=3, has_group=True)
    assert source.committed == [{_KEY: 3}]
    alone = _Source(9)
    _run(alone, count=3)
    assert alone.committed == []


def test_a_long_run_commits_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_progress, "_COMMIT_EVERY_S", 0.0)
    source = _Source(4)
    _run(source, ends={_KEY: 4}, has_group=True)
    assert source.committed == [{_KEY: 2}, {_KEY: 4}]


def test_what_could_not_be_written_is_not_committed() -> None:
    class _Closed(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    source = _Source(4)
    with pytest.raises(BrokenPipeError):
        _run(source, has_group=True, stream=_Closed())
    assert source.committed == []


def test_a_stream_that_takes_a_part_gets_the_rest() -> None:
    class _Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(data[:3])

    assert _run(_Source(9), count=9, stream=_Slow()) == b"".join(b"%d\n" % n for n in range(9))


def test_a_group_that_moved_on_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    source = _Source(2)
    source.error = KafkaError(ErrorCode.ILLEGAL_GENERATION)
    _run(source, count=2, has_group=True)
    assert "will read the last records" in capsys.readouterr().err
    source = _Source(2)
    source.error = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        _run(source, count=2, has_group=True)


def test_printed_records_are_committed_before_their_partition_is_revoked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = _Source(6)
    source.rebalance_at = 4
    assert _run(source, ends={_KEY: 6}, has_group=True) == b"0\n1\n2\n3\n4\n5\n"
    assert source.committed == [{_KEY: 4}, {_KEY: 6}]
    assert capsys.readouterr().err == ""


def test_records_repeated_after_a_rebalance_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = _Source(6)
    source.rebalance_at = 4
    source.error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    printed = _run(source, ends={_KEY: 6}, has_group=True)
    assert printed == b"0\n1\n2\n3\n0\n1\n2\n3\n4\n5\n"
    assert capsys.readouterr().err.splitlines() == [
        "the group has rebalanced: members will read the last records of orders-0 again",
        "orders-0: printed again after a rebalance: offsets 0 to 3",
        "the group has rebalanced: members will read the last records of orders-0 again",
    ]


def test_a_commit_refused_in_a_rebalance_is_made_up_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _Source(2)
    progress = GroupProgress(source, quiet=False)
    monkeypatch.setattr(group_progress, "_COMMIT_EVERY_S", 0.0)
    progress.commit_if_due()
    progress.wrote(source.poll(0, 2))
    source.error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    progress.commit_if_due()
    source.error = None
    progress.revoke()
    assert source.committed == [{_KEY: 2}]
    assert capsys.readouterr().err == ""


def test_the_start_of_a_partition_is_committed_too() -> None:
    source = _Source(0)
    _run(source, has_group=True)
    assert source.committed == [{_KEY: 0}]


def test_a_run_that_continues_reports_the_end_once(capsys: pytest.CaptureFixture[str]) -> None:
    stop, source = Stop(), _Source(3)
    source.stop = stop
    pump = Pump(
        source,
        io.BytesIO(),
        formatter("%o"),
        None,
        patience_s=5.0,
        check_output=lambda: None,
        waiting="waiting",
    )
    pump.run(None, {_KEY: 3}, stop, exit_at_end=False)
    assert capsys.readouterr().err == "waiting\n"


def test_a_waiting_user_is_shown_topic_and_position() -> None:
    end, keys = Position(Anchor.END), [("demo", 0), ("demo", 1), ("demo", 2)]
    assert waiting_note("demo", keys, end, None) == (
        "waiting for new records in 'demo' (3 partitions, from the end); "
        "use -o start to read from the beginning"
    )
    assert waiting_note("demo", keys[:1], Position(Anchor.START), None) == (
        "no more records in 'demo' (1 partition); waiting for new ones, ^C ends"
    )
    assert "group 'g'; use -o start" in waiting_note("demo", keys, end, "g")


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "middle"],
        ["-f", "%q"],
        ["-n", "-1"],
        ["-g", "g", "-p", "0"],
        ["-g", "g", "-o", "42"],
        ["-g", "g", "-o", "-5"],
        ["--timeout", "soon"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_connecting(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["consume", "orders", "-b", "127.0.0.1:1", *options]) == 2
    assert "error[LL0902]" in capsys.readouterr().err
