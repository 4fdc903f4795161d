from __future__ import annotations

import string

import pytest

from lakelog.base.uuids import decode_uuid, encode_uuid

VALUE = bytes(range(240, 256))
TEXT = encode_uuid(VALUE)


def test_text_and_back() -> None:
    assert len(TEXT) == 22
    assert decode_uuid(TEXT) == VALUE


def test_an_id_has_one_text() -> None:
    """Otherwise a file with a damaged id would be trusted and never be rebuilt."""
    others = [TEXT[:-1] + last for last in string.printable if last != TEXT[-1]]
    believed = []
    for other in others:
        try:
            believed.append(decode_uuid(other))
        except ValueError:
            continue
    assert len(believed) == 3, "two bits of the last character count"
    assert VALUE not in believed


@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + "A", TEXT + "==", TEXT.replace("_", "/")])
def test_anything_else_is_refused(text: str) -> None:
    assert text != TEXT
    with pytest.raises(ValueError, match="is not a UUID of 22"):
        decode_uuid(text)
