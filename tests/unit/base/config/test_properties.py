from __future__ import annotations

import pytest

from lakelog.base.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("# comment\n! too\n\n a = b \r\nc:d\re f", {"a": "b ", "c": "d", "e": "f"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"a\=b=\u00e9\t\q", {"a=b": "é\tq"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("k\\\n#not=comment", {"k#not": "comment"}),
    ],
)
def test_lines_are_read_as_java_does(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_a_broken_escape_is_rejected() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12")
