from __future__ import annotations

from typing import Any

import pytest

from lakelog.client.producer.types import check_types


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"value": "text"}, r"^value must be bytes or None, not str: use 'text'\.encode\(\)$"),
        ({"value": "x" * 99}, r"use 'x{20}\.\.\.'\.encode"),
        ({"value": 5}, "^value must be bytes or None, not int$"),
        ({"value": b"", "key": "k"}, r"^key must be bytes or None, not str: use 'k'\.encode"),
        ({"value": b"", "headers": {"a": b"b"}}, r"such as \[\('name', b'value'\)\], not 'a'$"),
        ({"value": b"", "headers": ["ab"]}, "^headers must be pairs"),
        ({"value": b"", "headers": 5}, "^headers must be pairs"),
        ({"value": b"", "headers": [("a", "b")]}, r"^header 'a' must be bytes .* use 'b'\.encode"),
        ({"value": b"", "headers": [(b"a", b"b")]}, "name of a header must be str, not bytes"),
        ({"value": b"", "topic": b"orders"}, "^topic must be str, such as 'orders', not bytes$"),
        ({"value": b"", "partition": "0"}, "^partition must be int or None, not str$"),
        ({"value": b"", "timestamp_ms": 1.5}, "^timestamp_ms must be int or None, not float$"),
    ],
)
def test_a_wrong_type_is_named_with_the_wanted_one(record: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        check_types(**{"topic": "orders", **record})


@pytest.mark.parametrize("value", [None, b"v", bytearray(b"v"), memoryview(b"v")])
def test_bytes_of_any_kind_are_values(value: object) -> None:
    check_types("orders", value, value, [("name", value)], 0, 5)
