"""Records as text: format strings and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.failures import CliError
from lakelog.cli.record_text import Header, formatter, json_line, parse_json_line
from lakelog.client.consumer import ConsumerRecord


def _record(
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp: int = 1500,
    headers: Sequence[Header] = (),
) -> ConsumerRecord:
    return ConsumerRecord("orders", 2, 41, timestamp, key, value, (*headers,), 0)


def test_json_never_omits_a_key() -> None:
    fields = json.loads(json_line(_record(key=None, value=None, timestamp=-1)))
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
    line = json_line(_record(key=key, value=value, headers=headers))
    assert line.count(b"\n") == 1
    back = parse_json_line(line)
    assert (back.key, back.value, list(back.headers)) == (key, value, headers)
    assert (back.partition, back.timestamp_ms) == (2, 1500)


def test_json_values_may_be_any_json() -> None:
    record = parse_json_line(b'{"key": 7, "value": {"a": [1]}, "headers": {"h": "x"}}')
    assert (record.key, record.value) == (b"7", b'{"a": [1]}')
    assert record.headers == (("h", b"x"),)
    assert record.partition is None


def test_a_null_value_is_a_tombstone_and_a_missing_one_an_error() -> None:
    assert parse_json_line(b'{"key": "k", "value": null}').value is None
    with pytest.raises(ValueError, match="'value' is missing; \"value\": null writes a tombstone"):
        parse_json_line(b'{"key": "k"}')


def test_an_object_of_headers_has_no_encodings() -> None:
    headers = b'{"value": "", "headers": {"a": "x", "a_encoding": "base64", "b": null, "c": 1}}'
    assert parse_json_line(headers).headers == (
        ("a", b"x"),
        ("a_encoding", b"base64"),
        ("b", None),
        ("c", b"1"),
    )


def test_a_time_may_be_iso_8601_and_milliseconds_come_first() -> None:
    iso = b'{"value": "", "timestamp": "1970-01-01T00:00:01.5Z"'
    assert parse_json_line(iso + b"}").timestamp_ms == 1500
    assert parse_json_line(iso + b', "timestamp_ms": 7}').timestamp_ms == 7
    assert parse_json_line(b'{"value": "", "timestamp": null}').timestamp_ms is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"key":"k","val":"x"}', "unknown field 'val'; did you mean 'value'"),
        (b'{"value":"x","xyz":1}', "unknown field 'xyz'; fields are topic, partition"),
        (b'{"value":"x","value":"y"}', "field 'value' appears twice"),
        (b'{"value":"x","key_encoding":"utf8"}', "encoding of key is 'utf8'"),
        (b'{"value":"x","value_encoding":"hex"}', "encoding of value is 'hex'"),
        (b'{"value":5,"value_encoding":"base64"}', "value is base64 but not a string"),
        (b'{"value":"?","value_encoding":"base64"}', "value is not base64"),
        (b'{"value":NaN}', "not JSON compliant"),
        (b'{"value":[1e999]}', "not JSON compliant"),
        (b'{"value":"\\ud800"}', "surrogates"),
        (b'{"value":"","headers":{"\\ud800":""}}', "surrogates"),
        (b'{"value":"","headers":[{"key":"h","valeu":""}]}', "unknown field 'valeu' of a header"),
        (b'{"value":"","headers":[{"key":"h"}]}', "header 'h' has no value; write null"),
        (b'{"value":"","headers":[{}]}', "a header must be"),
        (b'{"value":"","headers":1}', "headers must be a list or an object"),
        (b'{"value":"","partition":"0"}', "partition is not a whole number"),
        (b'{"value":"","partition":true}', "partition is not a whole number"),
        (b'{"value":"","timestamp":"-1h"}', "timestamp is not ISO 8601"),
        (b'{"value":"","timestamp":"2026-13-01"}', "timestamp: .* is not a time"),
        (b"[]", "not a JSON object"),
        (b"{", "Expecting"),
        (b"\xff", "codec can't decode"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_bad_lines_are_value_errors(line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json_line(line)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (r"%t/%p@%o %k %v\n", b"orders/2@41 k v\n"),
        (r"%T %D", b"1500 1970-01-01T00:00:01.500Z"),
        (r"100%% %s\t\x00\\", b"100% v\t\x00\\"),
        ("%h", b"a=1,b="),
        ("%k{hex}|%v{base64}|%s{base64raw}|%h{hex}", b"6b|dg==|dg|a=31,b="),
        ("%v{hex}{hex}", b"76{hex}"),
        ('{"key": "%k", "at": %o}', b'{"key": "k", "at": 41}'),
        ("%v%{hex%}", b"v{hex}"),
        ("%k\udcff", b"k\xff"),
    ],
)
def test_format_strings(form: str, printed: bytes) -> None:
    record = _record(headers=[("a", b"1"), ("b", None)])
    assert formatter(form)(record) == printed


def test_bytes_are_copied_as_they_are() -> None:
    assert formatter("%k|%v")(_record(key=None, value=b"\xff\x00\n")) == b"|\xff\x00\n"


@pytest.mark.parametrize(
    "form", ["%x", "plain", "", "%", "%v{rot13}", "%v{}", "%v{hex", "%p{hex}", "%x{hex}", "%v{ }"]
)
def test_a_format_that_cannot_be_meant_is_refused(form: str) -> None:
    with pytest.raises(CliError) as caught:
        formatter(form)
    assert caught.value.code == "LL0902"


def test_the_error_for_an_unknown_modifier_lists_the_existing_ones() -> None:
    with pytest.raises(CliError, match=r"unknown modifier '{hexx}' of '%v'") as caught:
        formatter("%v{hexx}")
    assert "{hex}, {base64}" in caught.value.hint
