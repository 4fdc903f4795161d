"""JSON values in typed columns; what does not fit is rescued with its path."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.typed.fitting import (
    LEVELS_MAX,
    NO_JSON,
    RawJson,
    Repeated,
    fitted,
    json_text,
    parsed,
    read_json,
)
from lakelog.tables.typed.shapes import extended, shape_of

TYPE = extended(
    pa.struct([]),
    shape_of([{"n": 1, "d": 1.5, "s": "x", "f": True, "l": [1], "o": {"x": 1}, "offset": 1}]),
)


def fit(text: str) -> tuple[Any, Any]:
    """The fields that are not null, and the rescued rest."""
    data, rescued = fitted([text.encode()], TYPE)
    found = data[0].as_py()
    fields = None if found is None else {k: v for k, v in found.items() if v is not None}
    return fields, json.loads(rescued[0].as_py() or "null")


@pytest.mark.parametrize(
    ("text", "fields", "rescued"),
    [
        ('{"n": 5, "offset": 9}', {"n": 5, "offset": 9}, None),
        ('{"d": 3, "s": "é"}', {"d": 3.0, "s": "é"}, None),
        ("{}", {}, None),
        ('{"n": null, "o": null, "l": null}', {}, None),
        ('{"n": 1.0}', {}, {"$.n": 1.0}),
        ('{"n": true, "f": 1}', {}, {"$.n": True, "$.f": 1}),
        ('{"n": 9223372036854775808}', {}, {"$.n": 9223372036854775808}),
        ('{"d": 9007199254740993}', {}, {"$.d": 9007199254740993}),
        ('{"s": 1, "new": {"a": [1]}}', {}, {"$.s": 1, "$.new": {"a": [1]}}),
        ('{"l": [1, "x", null]}', {"l": [1, None, None]}, {"$.l[1]": "x"}),
        ('{"l": {"a": 1}, "o": [1]}', {}, {"$.l": {"a": 1}, "$.o": [1]}),
        ('{"o": {"x": "y", "z w": 1}}', {"o": {"x": None}}, {"$.o.x": "y", '$.o["z w"]': 1}),
        ('{"s": "\\ud800", "\\udfff": 1}', {}, {"$.s": "\ud800", '$["\\udfff"]': 1}),
        ('{"n": 1, "d": 1e400}', {"n": 1}, {"$.d": "1e400"}),
        ('{"n": 1, "d": -%s}' % ("9" * 5000), {"n": 1}, {"$.d": "-" + "9" * 5000}),
        ('{"n": 1, "s": "a", "s": "b"}', {"n": 1}, {"$.s": ["a", "b"]}),
        ('{"n": 1, "l": [1], "l": [2]}', {"n": 1}, {"$.l": [[1], [2]]}),
        (
            '{"n": 1, "o": {"x": 1, "x": 1, "y": 2}}',
            {"n": 1, "o": {"x": None}},
            {"$.o.x": [1, 1], "$.o.y": 2},
        ),
        ('{"n": 1, "new": {"a": 1, "a": 2}}', {"n": 1}, {"$.new": {"a": [1, 2]}}),
        ("9" * 5000, None, {"$": "9" * 5000}),
        ("[1, 2]", None, {"$": [1, 2]}),
        ('"text"', None, {"$": "text"}),
        ("null", None, None),
    ],
)
def test_a_value_is_divided_without_loss(text: str, fields: Any, rescued: Any) -> None:
    assert fit(text) == (fields, rescued)


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"plain text", b"{", b'{"a": NaN}', b"\xff\xfe\xfd", b"[" * 100_000),
    ],
)
def test_bytes_that_are_no_json_are_in_no_column(value: bytes | None) -> None:
    assert parsed(value) is NO_JSON
    data, rescued = fitted([value], TYPE)
    assert (data[0].as_py(), rescued[0].as_py()) == (None, None)


def test_the_prefix_of_a_schema_registry_is_skipped() -> None:
    """Serializers put the id of the schema there, or in a header: the value is JSON then."""
    data, rescued = fitted([b"\0\0\0\0\x07" + b'{"n": 1}', b"\0\0\0\0\x07", b"\0"], TYPE)
    assert [row and row["n"] for row in data.to_pylist()] == [1, None, None]
    assert rescued.null_count == 3


def test_columns_have_a_row_for_each_value() -> None:
    data, rescued = fitted([b'{"n": 1}', None, b"[1]"], TYPE)
    assert (data.type, len(data), len(rescued)) == (TYPE, 3, 3)
    data, rescued = fitted([], TYPE)
    assert (data.type, len(data), len(rescued)) == (TYPE, 0, 0)


def test_a_type_of_another_program_gets_no_values() -> None:
    data, rescued = fitted([b'{"at": "2026-01-01"}'], pa.struct([("at", pa.date32())]))
    assert data[0].as_py() == {"at": None}
    assert json.loads(rescued[0].as_py()) == {"$.at": "2026-01-01"}


@pytest.mark.parametrize("depth", [99, 100, 900, 1000, 100_000])
def test_a_deep_value_leaves_the_other_fields_in_their_columns(depth: int) -> None:
    fields, rescued = fit('{"n": 1, "deep": ' + "[" * depth + "]" * depth + "}")
    assert fields == {"n": 1}
    deep, levels = rescued["$.deep"], 0
    while isinstance(deep, list) and deep:
        (deep,) = deep
        levels += 1
    assert levels + len(deep) // 2 == depth - (deep == [])


_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    _LEAVES | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.long
@given(VALUES)
def test_other_values_are_as_python_reads_them(value: Any) -> None:
    text = json.dumps(value)
    assert read_json(text.encode()) == value
    assert json_text(value) == json.dumps(value, separators=(",", ":"))


@pytest.mark.long
@given(VALUES, st.integers(1, 5))
def test_a_deep_container_is_its_text(value: Any, parts: int) -> None:
    depth = parts * LEVELS_MAX
    text = '{"a":' * depth + json.dumps([value]) + "}" * depth
    found = read_json(text.encode())
    for _ in range(LEVELS_MAX):
        assert set(found) == {"a"}
        found = found["a"]
    assert found == RawJson(text[5 * LEVELS_MAX : len(text) - LEVELS_MAX])


def test_containers_of_the_greatest_depth_are_values() -> None:
    text = "[" * LEVELS_MAX + "]" * LEVELS_MAX
    assert read_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "inner", ["x", "NaN", "1,", "[1}", '"', "[" * 1000, "]" * 1000, '"a" "b"', "Infinity"]
)
@pytest.mark.parametrize("depth", [0, 1, LEVELS_MAX, 5 * LEVELS_MAX, 20 * LEVELS_MAX + 7])
def test_bad_json_is_found_at_any_depth(inner: str, depth: int) -> None:
    with pytest.raises(ValueError):
        read_json(("[" * depth + inner + "]" * depth).encode())


def test_a_bracket_in_a_string_is_no_level() -> None:
    text = json.dumps({"s": '[{"' * 200 + "\\", "n": 1})
    assert read_json(text.encode()) == json.loads(text)


def test_numbers_that_python_cannot_hold_keep_their_digits() -> None:
    digits = "1" + "0" * 5000
    found = read_json(f'{{"a": 1e400, "b": -{digits}, "c": 5, "d": {"7" * 700}}}'.encode())
    assert found == {"a": RawJson("1e400"), "b": RawJson("-" + digits), "c": 5, "d": int("7" * 700)}


def test_all_values_of_equal_names_are_kept() -> None:
    found = read_json(b'{"a": 1, "b": 2, "a": [3], "a": null}')
    assert found == {"a": [1, [3], None], "b": 2}
    assert isinstance(found["a"], Repeated)
    assert json_text(found) == '{"a":[1,[3],null],"b":2}'


def test_bytes_are_decoded_as_python_decodes_json() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert read_json('{"é": "[1"}'.encode(encoding)) == {"é": "[1"}


def test_the_time_for_an_unclosed_text_grows_with_its_length_alone() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="not closed"):
        read_json(b"[" * 5000 + b'"a\\' * 20_000)
    assert time.process_time() - began < 30
