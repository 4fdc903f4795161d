from __future__ import annotations

import io

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.records import input_lines
from lakelog.cli.records.input_lines import LineParser, read_records
from lakelog.cli.records.record_text import InputRecord


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
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 8)
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
