from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.failures import CliError
from lakelog.cli.record_text import Header, formatter, json_line, parse_json_line


@dataclass(frozen=True)
class _Record:
    topic: str = "orders"
    partition: int = 2
    offset: int = 41
    timestamp: int = 1500
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: list[Header] = field(default_factory=list)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (r"%t/%p@%o %k %v\n", b"orders/2@41 k v\n"),
        (r"%T %D", b"1500 1970-01-01T00:00:01.500Z"),
        (r"100%% %s\t\x00\\", b"100% v\t\x00\\"),
        ("%h", b"a=1,b="),
    ],
)
def test_format_strings(form: str, printed: bytes) -> None:
    record = _Record(headers=[("a", b"1"), ("b", None)])
    assert formatter(form)(record) == printed


def test_bytes_are_copied_as_they_are() -> None:
    assert formatter("%k|%v")(_Record(key=None, value=b"\xff\x00\n")) == b"|\xff\x00\n"


@pytest.mark.parametrize("form", ["%x", "plain", "", "%"])
def test_a_format_that_cannot_be_meant_is_refused(form: str) -> None:
    with pytest.raises(CliError) as caught:
        formatter(form)
    assert caught.value.code == "LL0902"


def test_json_never_omits_a_key() -> None:
    fields = json.loads(json_line(_Record(key=None, value=None, timestamp=-1)))
    assert fields == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": None,
        "timestamp_ms": -1,
        "key": None,
        "key_encoding": None,
        "value": None,
        "value_encoding": None,
        "headers": [],
    }


_content = st.none() | st.binary(max_size=40)


@given(key=_content, value=_content, headers=st.lists(st.tuples(st.text(max_size=5), _content)))
def test_json_lines_lose_nothing(
    key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    line = json_line(_Record(key=key, value=value, headers=headers))
    assert line.count(b"\n") == 1
    back = parse_json_line(line)
    assert (back.key, back.value, list(back.headers)) == (key, value, headers)
    assert (back.partition, back.timestamp_ms) == (2, 1500)


def test_json_values_may_be_any_json() -> None:
    record = parse_json_line(b'{"key": 7, "value": {"a": [1]}, "headers": {"h": "x"}}')
    assert (record.key, record.value) == (b"7", b'{"a": [1]}')
    assert record.headers == (("h", b"x"),)
    assert record.partition is None


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{",
        b"\xff",
        b'{"partition": "0"}',
        b'{"partition": true}',
        b'{"headers": 1}',
        b'{"headers": [{}]}',
        b'{"value": "?", "value_encoding": "base64"}',
    ],
)
def test_bad_lines_are_value_errors(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json_line(line)
