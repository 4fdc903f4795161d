from __future__ import annotations

import struct as binary_layout
from typing import Any

import pytest

from lakelog.protocol.registry import APIS
from lakelog.wire import interpret
from lakelog.wire.codec import decode, decode_prefix, encode, encode_parts
from lakelog.wire.errors import WireError
from lakelog.wire.primitives import (
    MAX_REQUEST_ELEMENTS,
    MAX_STRING_BYTES,
    MAX_UNKNOWN_TAGS,
    encode_uvarint,
)
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    error_text,
    float64,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Item(Struct):
    name: str = string()
    size: int = int32("1+", default=7)


class Cargo(Message, versions="0-3", flexible="2+"):
    count: int = int16()
    owner: str | None = string(nullable="1+", default=None)
    items: list[Item] | None = array(Item, nullable="1+")
    ids: list[int] = array(int64)
    blob: Any = binary("1+", nullable="2+")
    batch: Any = records(nullable="0+")
    note: str = string("2+", tag=1, default="none")
    best: Item = struct(Item, "3+", tag=0)


class Numbers(Message, versions="0", flexible="0+"):
    small: int = uint16()
    large: int = uint32()
    real: float = float64()
    flag: bool = boolean()
    key: bytes = uuid()


class Choice(Message, versions="0-1", flexible="1+"):
    left: Item | None = struct(Item, nullable="0+", default=None)
    right: Item | None = struct(Item, nullable="0+", tag=0, default=None)


class Failure(Message, versions="0-1", flexible="1+"):
    text: str | None = error_text()


class Names(Message, versions="0-1", flexible="1+"):
    names: list[str] = array(string)


class Range:
    """Like a range of a file: it has a length and no bytes."""

    def __len__(self) -> int:
        return 3000


FULL = Cargo(
    count=-2,
    owner="ö",
    items=[Item(name="a", size=1), Item(name="")],
    ids=[1, -1],
    blob=b"xy",
    batch=b"zzz",
    note="n",
    best=Item(name="b"),
)

# By hand from the layouts in lakelog.wire.primitives.
GOLDEN = {
    0: "fffe 0002c3b6 00000002 000161 0000 00000002 0000000000000001 ffffffffffffffff "
    "00000003 7a7a7a",
    1: "fffe 0002c3b6 00000002 000161 00000001 0000 00000007 00000002 0000000000000001 "
    "ffffffffffffffff 00000002 7879 00000003 7a7a7a",
    2: "fffe 03c3b6 03 0261 00000001 00 01 00000007 00 03 0000000000000001 ffffffffffffffff "
    "03 7879 04 7a7a7a 01 01 02 026e",
    3: "fffe 03c3b6 03 0261 00000001 00 01 00000007 00 03 0000000000000001 ffffffffffffffff "
    "03 7879 04 7a7a7a 02 00 07 0262 00000007 00 01 02 026e",
}


@pytest.mark.parametrize("version", GOLDEN)
def test_golden_bytes(version: int) -> None:
    data = bytes.fromhex(GOLDEN[version])
    assert encode(FULL, version) == data
    assert interpret.encode(FULL, version) == data
    decoded = decode(Cargo, data, version)
    assert encode(decoded, version) == data


def test_fields_absent_from_a_version_hold_their_defaults() -> None:
    decoded = decode(Cargo, encode(FULL, 0), 0)
    assert decoded.items is not None
    assert [item.size for item in decoded.items] == [7, 7]
    assert (decoded.blob, decoded.note, decoded.best) == (b"", "none", Item())


def test_nulls_where_the_version_has_them() -> None:
    empty = Cargo(owner=None, items=None, blob=None, batch=None)
    for version in (2, 3):
        assert decode(Cargo, encode(empty, version), version) == empty
    assert encode(empty, 2) == bytes.fromhex("0000 00 00 01 00 00 00")


def test_null_and_empty_are_distinguished() -> None:
    message = Cargo(owner="", items=[], blob=b"", batch=b"")
    decoded = decode(Cargo, encode(message, 2), 2)
    assert (decoded.owner, decoded.items, decoded.blob, decoded.batch) == ("", [], b"", b"")


@pytest.mark.parametrize("message", [Cargo(owner=None), Cargo(owner="", items=None)])
def test_null_where_the_version_has_none_cannot_be_encoded(message: Cargo) -> None:
    with pytest.raises(WireError):
        encode(message, 0)


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, "0000 ffff"), (0, "0000 0000 ffffffff"), (2, "0000 01 01 00"), (0, "0000 fffe")],
)
def test_null_where_the_version_has_none_cannot_be_decoded(version: int, data: str) -> None:
    with pytest.raises(WireError, match="null"):
        decode(Cargo, bytes.fromhex(data), version)


@pytest.mark.parametrize("version", list(Cargo.__versions__))
def test_every_truncation_is_refused(version: int) -> None:
    data = encode(FULL, version)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(Cargo, data, version, 0, end)
        with pytest.raises(WireError):
            decode_prefix(Cargo, data, version, 0, end)


@pytest.mark.parametrize("version", list(Cargo.__versions__))
def test_left_over_bytes_are_refused(version: int) -> None:
    data = encode(FULL, version)
    with pytest.raises(WireError, match="1 bytes left over"):
        decode(Cargo, data + b"\0", version)
    _, left = decode_prefix(Cargo, data + b"\0", version)
    assert left == 1


def test_a_message_inside_a_larger_buffer() -> None:
    data = bytearray(b"??" + encode(FULL, 3) + b"???")
    decoded = decode(Cargo, data, 3, 2, len(data) - 3)
    assert decoded == FULL
    assert isinstance(decoded.batch, memoryview)
    assert decoded.batch.obj is data


@pytest.mark.parametrize("count", [2**31 - 1, 1000, -2, -(2**31)])
def test_impossible_counts_are_refused_before_a_list_exists(count: int) -> None:
    head = bytes.fromhex("0000 0000")
    with pytest.raises(WireError):
        decode(Cargo, head + binary_layout.pack(">i", count) + bytes(100), 0)


def test_a_count_must_fit_the_remaining_bytes() -> None:
    with pytest.raises(WireError, match="a count of 51 elements"):
        decode(Names, binary_layout.pack(">i", 51) + bytes(100), 0)
    assert len(decode(Names, binary_layout.pack(">i", 50) + bytes(100), 0).names) == 50
    items = bytes.fromhex("0000 0000 00000011") + bytes(100)
    with pytest.raises(WireError, match="a count of 17 elements"):
        decode(Cargo, items, 1)


def test_a_message_has_a_limited_number_of_elements() -> None:
    names = encode_uvarint(MAX_REQUEST_ELEMENTS + 2) + b"\x01" * (MAX_REQUEST_ELEMENTS + 1) + b"\0"
    with pytest.raises(WireError, match="limit"):
        decode(Names, names, 1)
    decoded = decode(Names, names, 1, max_elements=MAX_REQUEST_ELEMENTS + 1)
    assert len(decoded.names) == MAX_REQUEST_ELEMENTS + 1


def test_elements_are_counted_over_all_arrays() -> None:
    data = encode(FULL, 3)
    assert decode(Cargo, data, 3, max_elements=4) == FULL
    with pytest.raises(WireError):
        decode(Cargo, data, 3, max_elements=3)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="utf-8"):
        decode(Names, bytes.fromhex("02 03 c328 00"), 1)


def test_strings_have_a_limit_in_flexible_versions_too() -> None:
    longest = Names(names=["x" * 32_767])
    for version in (0, 1):
        assert decode(Names, encode(longest, version), version) == longest
        with pytest.raises(WireError):
            encode(Names(names=["x" * 32_768]), version)
    data = b"\x02" + encode_uvarint(32_769) + b"x" * 32_768 + b"\x00"
    with pytest.raises(WireError, match="32768 bytes"):
        decode(Names, data, 1)


def with_tags(*tags: tuple[int, bytes]) -> bytes:
    out = bytes.fromhex("0000 00 00 01 00 00") + encode_uvarint(len(tags))
    for tag, payload in tags:
        out += encode_uvarint(tag) + encode_uvarint(len(payload)) + payload
    return out


def test_unknown_tags_are_skipped_between_known_ones() -> None:
    data = with_tags((0, b"\x02b\0\0\0\x09\0"), (1, b"\x02n"), (2, b"??"), (500, b""))
    decoded = decode(Cargo, data, 3)
    assert (decoded.note, decoded.best) == ("n", Item(name="b", size=9))


@pytest.mark.parametrize(
    "data",
    [
        with_tags((1, b"\x02n"), (0, b"\x01\0\0\0\x09\0")),
        with_tags((1, b"\x02n"), (1, b"\x02n")),
        with_tags((1, b"\x02n?")),
        with_tags((1, b"\x03n")),
        bytes.fromhex("0000 00 00 01 00 00 01 01 01 026e"),
        bytes.fromhex("0000 00 00 01 00 00 01 01 03 026e"),
        bytes.fromhex("0000 00 00 01 00 00 01 02 03 0000"),
        with_tags(*((tag, b"") for tag in range(2, MAX_UNKNOWN_TAGS + 3))),
        with_tags((1, b"\x02n"))[:-1],
        with_tags((7, b"1234"))[:-1],
        bytes.fromhex("0000 00 00 01 00 00") + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_bad_tagged_fields_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(Cargo, data, 3)
    with pytest.raises(WireError):
        interpret.decode(Cargo, data, 3)


def test_tagged_fields_equal_to_their_default_are_omitted() -> None:
    assert encode(Cargo(note="none", best=Item(name="", size=7)), 3)[-1:] == b"\0"


def test_unsigned_and_floating_numbers() -> None:
    message = Numbers(small=65_535, large=2**32 - 1, real=-0.5, flag=True, key=bytes(range(16)))
    data = bytes.fromhex("ffff ffffffff bfe0000000000000 01") + bytes(range(16)) + b"\0"
    assert encode(message, 0) == data
    assert decode(Numbers, data, 0) == message


def test_any_nonzero_byte_is_true() -> None:
    data = bytearray(encode(Numbers(flag=True), 0))
    data[14] = 0x80
    assert decode(Numbers, data, 0).flag is True


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        (Choice(), 0, "ff ff"),
        (Choice(left=Item(name="a")), 0, "01 000161 ff"),
        (Choice(right=Item(name="a")), 0, "ff 01 000161"),
        (Choice(), 1, "ff 00"),
        (Choice(left=Item()), 1, "01 01 00000007 00 00"),
        (Choice(right=Item(name="a")), 1, "ff 01 00 08 01 0261 00000007 00"),
    ],
)
def test_nullable_structs(message: Choice, version: int, data: str) -> None:
    assert encode(message, version) == bytes.fromhex(data)
    assert interpret.encode(message, version) == bytes.fromhex(data)
    assert decode(Choice, bytes.fromhex(data), version) == message


def test_a_tagged_null_is_not_the_same_as_none_sent() -> None:
    assert decode(Choice, bytes.fromhex("ff 01 00 01 00"), 1) == Choice()


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


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_versions_are_refused_by_name(version: int) -> None:
    with pytest.raises(WireError, match="Cargo has versions 0-3"):
        encode(FULL, version)
    with pytest.raises(WireError, match="Cargo has versions 0-3"):
        decode(Cargo, b"", version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("filler", ["x", "ä", "漢", "😀"])
def test_the_text_of_an_error_is_cut_at_a_character(version: int, filler: str) -> None:
    for size in (MAX_STRING_BYTES - 1, MAX_STRING_BYTES, MAX_STRING_BYTES + 1, 60_000):
        text = filler * (size // len(filler.encode())) + "." * (size % len(filler.encode()))
        data = encode(Failure(text=text), version)
        assert data == interpret.encode(Failure(text=text), version)
        told = decode(Failure, data, version).text
        assert told is not None
        if size <= MAX_STRING_BYTES:
            assert told == text
        else:
            assert told.endswith("…")
            assert text.startswith(told[:-1])
            assert MAX_STRING_BYTES - 4 < len(told.encode()) <= MAX_STRING_BYTES


def test_the_texts_of_all_errors_are_cut() -> None:
    def texts(kind: Any) -> Any:
        for field in kind.__fields__:
            if field.name.endswith("error_message"):
                yield kind, field
            elif field.struct is not None:
                yield from texts(field.struct)

    found = [each for api in APIS.values() for each in texts(api.response)]
    assert len(found) > 15
    assert [(kind, field.name) for kind, field in found if not field.is_cut] == []
