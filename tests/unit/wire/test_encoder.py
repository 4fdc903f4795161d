from __future__ import annotations

import struct as binary_layout

import pytest

import reference_codec
from lakelog.wire.codec import decode, encode, encode_parts
from lakelog.wire.primitives import MAX_STRING_BYTES, WireError
from lakelog.wire.schema import Message
from sample_messages import Cargo, Failure, Item, Numbers


class Range:
    """Like a range of a file: it has a length and no bytes."""

    def __len__(self) -> int:
        return 3000


@pytest.mark.parametrize("message", [Cargo(owner=None), Cargo(owner="", items=None)])
def test_null_where_the_version_has_none_cannot_be_encoded(message: Cargo) -> None:
    with pytest.raises(WireError):
        encode(message, 0)


def test_tagged_fields_equal_to_their_default_are_omitted() -> None:
    assert encode(Cargo(note="none", best=Item(name="", size=7)), 3)[-1:] == b"\0"


def test_records_are_a_part_of_their_own() -> None:
    batch = bytearray(1000)
    parts = encode_parts(Cargo(owner="", batch=batch), 3)
    assert parts[1] is batch
    assert b"".join(parts) == encode(Cargo(owner="", batch=batch), 3)


def test_a_range_of_a_file_stands_for_records() -> None:
    records_range = Range()
    parts = encode_parts(Cargo(owner="", batch=records_range), 0)
    assert parts[1] is records_range
    assert parts[0].endswith(binary_layout.pack(">i", 3000))
    assert len(parts) == 2


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Cargo(owner="", count=40_000), "Cargo"),
        (Cargo(owner="", ids=[2**63]), "Cargo"),
        (Cargo(owner="\ud800"), "Cargo"),
        (Numbers(key=b"short"), "UUID of 5 bytes"),
    ],
)
def test_values_that_do_not_fit_cannot_be_encoded(message: Message, field: str) -> None:
    with pytest.raises(WireError, match=field):
        encode(message, 0)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("filler", ["x", "ä", "漢", "😀"])
def test_the_text_of_an_error_is_cut_at_a_character(version: int, filler: str) -> None:
    for size in (MAX_STRING_BYTES - 1, MAX_STRING_BYTES, MAX_STRING_BYTES + 1, 60_000):
        text = filler * (size // len(filler.encode())) + "." * (size % len(filler.encode()))
        data = encode(Failure(text=text), version)
        assert data == reference_codec.encode(Failure(text=text), version)
        told = decode(Failure, data, version).text
        assert told is not None
        if size <= MAX_STRING_BYTES:
            assert told == text
        else:
            assert told.endswith("…")
            assert text.startswith(told[:-1])
            assert MAX_STRING_BYTES - 4 < len(told.encode()) <= MAX_STRING_BYTES
