"""Invalid header keys are read as Java reads them; `tests/oracle` compares many more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records.utf8 import decode_text


@given(st.text())
def test_valid_text_is_unchanged(text: str) -> None:
    assert decode_text(text.encode()) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ff", "?"),
        ("61 ff 62", "a?b"),
        ("e2 82", "?"),  # a euro sign without its last byte
        ("e2 82 61", "?a"),
        ("f0 9f 98", "?"),
        ("c0 80", "??"),  # an overlong zero
        ("ed a0 80", "?"),  # a surrogate; Python alone would return three characters
        ("ed a0 80 ed b0 80", "??"),
        ("ed a0", "?"),
        ("ed a0 61", "?a"),
        ("ed", "?"),
        ("ed 9f bf", "\ud7ff"),  # the last character before the surrogates
    ],
)
def test_invalid_bytes_become_replacement_characters(data: str, text: str) -> None:
    assert decode_text(bytes.fromhex(data)) == text.replace("?", "\N{REPLACEMENT CHARACTER}")


@given(st.binary(max_size=40))
def test_no_key_makes_a_record_unreadable(data: bytes) -> None:
    assert len(decode_text(data)) <= len(data)
