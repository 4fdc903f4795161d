"""Input lines become records, which are sent and counted."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli import delivery
from lakelog.cli.delivery import LineParser, Report, WrittenRecords, read_records, send_all
from lakelog.cli.failures import CliError
from lakelog.cli.record_text import Header, InputRecord
from lakelog.client.producer import Producer


def _read(data: bytes, parser: LineParser | None = None) -> list[InputRecord]:
    return list(read_records(io.BytesIO(data), parser or LineParser()))


def test_only_the_line_feed_ends_a_line() -> None:
    data = b"a\r\n\n\xff\x00\x0b\x85 b\n\rlast"
    values = [record.value for record in _read(data)]
    assert values == [b"a\r", b"", b"\xff\x00\x0b\x85 b", b"\rlast"]


def test_no_input_is_no_record() -> None:
    assert _read(b"") == []


def test_keys() -> None:
    assert _read(b"v\n", LineParser(key=b"k")) == [InputRecord(b"k", b"v")]
    separated = _read(b"k::v::w\nplain\n::v\n", LineParser(key_separator=b"::"))
    assert [(record.key, record.value) for record in separated] == [
        (b"k", b"v::w"),
        (None, b"plain"),
        (b"", b"v"),
    ]
    lines = b'{"id": "a"}\n{"id": 7}\n{"id": null}\n'
    from_field = _read(lines, LineParser(key_field="id"))
    assert [record.key for record in from_field] == [b"a", b"7", None]
    assert from_field[1].value == b'{"id": 7}'


def test_headers_and_partition_go_to_every_record() -> None:
    parser = LineParser(headers=(("h", b"1"),), partition=3)
    assert _read(b"v", parser) == [InputRecord(None, b"v", (("h", b"1"),), 3)]
    json_parser = LineParser(input_format="jsonl", headers=(("h", b"1"),))
    line = b'{"key": null, "value": null, "headers": {"a": "b"}, "partition": 2, "timestamp_ms": 9}'
    record = InputRecord(None, None, (("a", b"b"), ("h", b"1")), timestamp_ms=9)
    assert _read(line, json_parser) == [record]
    keeping = LineParser(input_format="jsonl", keep_partitions=True)
    assert [found.partition for found in _read(line, keeping)] == [2]
    chosen = LineParser(input_format="jsonl", partition=1)
    assert [found.partition for found in _read(line, chosen)] == [1]


def test_a_missing_key_field_is_an_error() -> None:
    with pytest.raises(CliError, match="line 1: field 'id' for the key is missing; did you mean"):
        _read(b'{"ids": 1}\n', LineParser(key_field="id"))
    with pytest.raises(CliError, match="null stands for a record without a key"):
        _read(b"{}\n", LineParser(key_field="id"))


def test_a_bad_line_is_named_after_the_good_ones() -> None:
    records = read_records(io.BytesIO(b'{"value": "a"}\n\n'), LineParser(input_format="jsonl"))
    assert next(records).value == b"a"
    with pytest.raises(CliError) as caught:
        next(records)
    assert caught.value.code == "LL0605"
    assert "line 2" in caught.value.message


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LINE_BYTES_MAX", 8)
    with pytest.raises(CliError, match="line 2"):
        _read(b"123456\n12345678")


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": b"k", "key_field": "f"},
        {"key": b"k", "key_separator": b":"},
        {"key": b"k", "input_format": "jsonl"},
        {"key_separator": b""},
        {"keep_partitions": True},
        {"keep_partitions": True, "input_format": "jsonl", "partition": 1},
    ],
)
def test_contradictions_are_usage_errors(arguments: dict[str, object]) -> None:
    with pytest.raises(CliError) as caught:
        LineParser(**arguments)  # type: ignore[arg-type]
    assert caught.value.code == "LL0902"


def test_progress_ends_at_everything() -> None:
    told: list[tuple[int, int]] = []
    stream = io.BytesIO(b"x\n" * 2500)
    list(read_records(stream, LineParser(), lambda size, records: told.append((size, records))))
    assert told == [(2000, 1000), (4000, 2000), (5000, 2500)]


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


def _sent(sink: _Sink, records: Iterable[InputRecord]) -> Report:
    return send_all(cast(Producer, sink), "t", records)


def test_every_record_is_counted_where_it_went() -> None:
    sink = _Sink()
    records = [InputRecord(b"k", b"v", (("h", b"1"),), 1, 5), InputRecord(None, None)]
    report = _sent(sink, [*records, *_values(b"abc")])
    assert sink.sent[:2] == records
    assert (report.records, report.bytes, report.failed) == (3, 6, 0)
    assert report.partitions == {0: WrittenRecords(2, 100, 101), 1: WrittenRecords(1, 100, 100)}


def test_failures_do_not_stop_the_rest() -> None:
    report = _sent(_Sink(), _values(b"refused", b"a", b"lost", b"refused", b"b"))
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
    report = _sent(_Quick(), values)
    assert (report.records, report.failed, report.gave_up) == (1, 1, True)
    assert [record.value for record in values] == [b"c"]
    assert not _sent(_Quick(), _values(b"a", b"lost")).gave_up


def test_a_refusal_at_the_first_record_ends_it() -> None:
    with pytest.raises(KafkaError, match="no such topic"):
        _sent(_Sink(), _values(b"nowhere", b"a"))


def _ending_with(error: Exception, *values: bytes) -> Iterator[InputRecord]:
    yield from _values(*values)
    raise error


def test_records_before_bad_input_are_reported() -> None:
    bad = CliError("LL0605", "line 3: not JSON")
    report = _sent(_Sink(), _ending_with(bad, b"a", b"b"))
    assert (report.records, report.bad_input) == (2, bad)


def test_an_error_of_the_input_is_raised_after_earlier_records_are_acknowledged() -> None:
    deliveries: list[_Delivery] = []

    class _Kept(_Sink):
        def send(self, *arguments: object, **named: object) -> _Delivery:
            deliveries.append(super().send(*arguments, **named))  # type: ignore[arg-type]
            return deliveries[-1]

    with pytest.raises(OSError, match="gone"):
        _sent(_Kept(), _ending_with(OSError("gone"), b"a"))
    assert [delivery.done for delivery in deliveries] == [True]
