"""JSON values in typed columns; what does not fit is rescued with its path."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakelog.tables.typed.fitting import NO_JSON, fitted, parsed
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
