"""The text format of Java's `.properties` files, parsed like `java.util.Properties.load`."""

from __future__ import annotations

import re

_SPACE = " \t\f"
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values; of a repeated key, the last value.

    Raises `ValueError` for a `\\u` without four hexadecimal digits.
    """
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        values[_unescape(key[0])] = _unescape(line[separator.end() :])
    return values


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and blank lines, with continued lines joined."""
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_SPACE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        whole = (pending or "") + line
        if _CONTINUED.search(whole):
            pending = whole[:-1]
            continue
        lines.append(whole)
        pending = None
    if pending:
        lines.append(pending)
    return lines


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError("\\u must be followed by four hexadecimal digits")
        return _NAMED.get(match[2], match[2])

    return _ESCAPE.sub(plain, text)
