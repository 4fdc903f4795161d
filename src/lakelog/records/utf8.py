"""Decoding of header keys as in Java's clients.

Java replaces invalid UTF-8 by U+FFFD instead of rejecting it, so that every consumer can read a
record with such a key. Python's `errors="replace"` returns the same text, except for encoded
surrogates: Java replaces a complete or truncated surrogate by a single character.
"""

from __future__ import annotations

import codecs

_ERRORS = "lakelog-java"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def decode_text(data: bytes) -> str:
    """Return the text, with U+FFFD in place of invalid UTF-8. Never raises."""
    return data.decode("utf-8", _ERRORS)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and 0xA0 <= _at(data, start + 1) <= 0xBF:
        return _REPLACEMENT, start + (3 if 0x80 <= _at(data, start + 2) <= 0xBF else 2)
    return _REPLACEMENT, error.end


def _at(data: bytes, position: int) -> int:
    return data[position] if position < len(data) else -1


codecs.register_error(_ERRORS, _replace)
