from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError
from lakelog.cli.records.delivery import WrittenRecords, send_all
from lakelog.cli.records.record_text import Header, InputRecord

_TOO_LARGE = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
_UNKNOWN = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "unknown outcome")


class _Metadata(NamedTuple):
    partition: int
    offset: int


class _Delivery:
    def __init__(self, metadata: _Metadata, error: KafkaError | None) -> None:
        self._metadata = metadata
        self._error = error
        self.done = False

    def result(self) -> _Metadata:
        self.done = True
        if self._error is not None:
            raise self._error
        return self._metadata


class _Sink:
    """Two partitions in turn; a value names what becomes of it."""

    def __init__(self) -> None:
        self.sent: list[InputRecord] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> _Delivery:
        if value == b"refused":
            raise _TOO_LARGE
        if value == b"nowhere":
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        number = len(self.sent)
        self.sent.append(InputRecord(key, value, tuple(headers), partition, timestamp_ms))
        error = _UNKNOWN if value == b"lost" else None
        return _Delivery(_Metadata(number % 2, 100 + number // 2), error)


def _values(*values: bytes) -> Iterator[InputRecord]:
    return (InputRecord(b"k", value) for value in values)


def test_every_record_is_counted_where_it_went() -> None:
    sink = _Sink()
    records = [InputRecord(b"k", b"v", (("h", b"1"),), 1, 5), InputRecord(None, None)]
    report = send_all(sink, "t", [*records, *_values(b"abc")])
    assert sink.sent[:2] == records
    assert (report.records, report.bytes, report.failed) == (3, 6, 0)
    assert report.partitions == {0: WrittenRecords(2, 100, 101), 1: WrittenRecords(1, 100, 100)}


def test_failures_do_not_stop_the_rest() -> None:
    report = send_all(_Sink(), "t", _values(b"refused", b"a", b"lost", b"refused", b"b"))
    assert (report.records, report.failed) == (2, 3)
    assert report.first_error is _TOO_LARGE
    assert report.largest_failed == len(b"k") + len(b"refused")


def test_after_a_time_out_the_rest_of_the_input_is_not_read() -> None:
    class _Quick(_Sink):
        def send(self, *arguments: object, **named: object) -> _Delivery:
            delivery = super().send(*arguments, **named)  # type: ignore[arg-type]
            delivery.done = True
            return delivery

    values = _values(b"a", b"lost", b"b", b"c")
    report = send_all(_Quick(), "t", values)
    assert (report.records, report.failed, report.gave_up) == (1, 1, True)
    assert [record.value for record in values] == [b"c"]
    assert not send_all(_Quick(), "t", _values(b"a", b"lost")).gave_up


def test_a_refusal_at_the_first_record_ends_it() -> None:
    with pytest.raises(KafkaError, match="no such topic"):
        send_all(_Sink(), "t", _values(b"nowhere", b"a"))


def _ending_with(error: Exception, *values: bytes) -> Iterator[InputRecord]:
    yield from _values(*values)
    raise error


def test_records_before_bad_input_are_reported() -> None:
    bad = CliError("LL0605", "line 3: not JSON")
    report = send_all(_Sink(), "t", _ending_with(bad, b"a", b"b"))
    assert (report.records, report.bad_input) == (2, bad)


def test_an_error_of_the_input_is_raised_after_earlier_records_are_acknowledged() -> None:
    deliveries: list[_Delivery] = []

    class _Kept(_Sink):
        def send(self, *arguments: object, **named: object) -> _Delivery:
            deliveries.append(super().send(*arguments, **named))  # type: ignore[arg-type]
            return deliveries[-1]

    with pytest.raises(OSError, match="gone"):
        send_all(_Kept(), "t", _ending_with(OSError("gone"), b"a"))
    assert [delivery.done for delivery in deliveries] == [True]
