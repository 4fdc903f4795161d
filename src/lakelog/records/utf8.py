"""Text of header keys as Java's clients read it.

Java replaces bytes that are not UTF-8 by U+FFFD instead of refusing them, so a record with such a
key is readable by every consumer. Python's `errors="replace"` gives the same, but for encoded
surrogates: Java replaces a whole one, or what there is of it, by a single character.
"""

from __future__ import annotations

import codecs

_ERRORS = "lakelog-java"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def decode_text(data: bytes) -> str:
    """The text, with U+FFFD where `data` is not UTF-8. Never fails."""
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
