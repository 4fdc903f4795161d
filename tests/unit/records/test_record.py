"""Invalid header keys are read as Java reads them; `tests/oracle` compares many more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counted_work import lines_run
from lakelog.records.batch import CorruptRecord, check_crc, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import (
    Record,
    RecordHead,
    decode_records,
    decode_text,
    iter_heads,
    record_view,
)

LIMIT = 1 << 24

nullable = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), nullable), max_size=3)
rows = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), nullable, nullable, headers), min_size=1, max_size=90
)


@settings(max_examples=60, deadline=None)
@given(rows=rows, codec=st.sampled_from(list(Codec)), base=st.integers(0, 2**40))
def test_round_trip(rows, codec: Codec, base: int) -> None:  # type: ignore[no-untyped-def]
    builder = BatchBuilder(codec)
    for timestamp, key, value, items in rows:
        builder.append(timestamp, key, value, items)
    batch = builder.build(base_offset=base)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert header.max_timestamp == max(row[0] for row in rows)
    if codec is Codec.NONE:
        assert builder.size_estimate == len(batch)
    expected = [
        Record(base + index, timestamp, key, value, tuple(items))
        for index, (timestamp, key, value, items) in enumerate(rows)
    ]
    assert decode_records(batch, header, LIMIT) == expected


def test_more_records_than_the_table_of_varints_holds() -> None:
    builder = BatchBuilder()
    for index in range(20_000):
        builder.append(index, None, b"%d" % index)
    batch = builder.build()
    records = decode_records(memoryview(batch), read_header(batch), LIMIT)
    assert [record.offset for record in records] == list(range(20_000))
    assert [record.timestamp for record in records] == list(range(20_000))
    assert records[-1].value == b"19999"


def sample() -> bytearray:
    builder = BatchBuilder()
    builder.append(5, b"key", b"value", [("name", b"x"), ("none", None)])
    builder.append(6, None, b"w" * 100)
    return builder.build()


def test_flipped_bytes_never_crash_nor_read_past_the_record() -> None:
    """A CRC would notice; a client may have it switched off, and a peer may write its own."""
    original = sample()
    for position in range(57, len(original)):
        for flip in (0x01, 0x02, 0x80, 0xFF):
            batch = bytearray(original)
            batch[position] ^= flip
            try:
                records = decode_records(batch, read_header(batch), LIMIT)
            except CorruptRecord:
                continue
            assert len(records) == 2
            assert sum(len(record.value or b"") for record in records) <= len(batch)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("0d 00 00 00 01 01 00", "a negative length"),
        ("0c 00 00 00 03 01 00", "a key of -2 bytes"),
        ("0c 00 00 00 01 03 00", "a value of -2 bytes"),
        ("0c 00 00 01 01 01 00", "an offset delta of -1"),
        ("0e 00 00 8101 01 01 00", "a negative offset delta of two bytes"),
        ("0c 00 00 02 01 01 00", "an offset delta beyond the last"),
        ("0c 00 00 00 01 01 01", "a header count of -1"),
        ("0c 00 00 00 01 01 7e", "63 headers in no bytes"),
        ("10 00 00 00 01 01 02 01 01", "a null header key"),
        ("0c 00 00 00 01 fe", "a cut value"),
        ("0c 00 00 00 01 01 00 00", "a trailing byte"),
        ("0a 00 00 00 01 01 00", "a length that is one too short"),
    ],
)
def test_inconsistent_records(body: str, why: str) -> None:
    with pytest.raises(CorruptRecord):
        decode_hand_made(bytes.fromhex(body), 1)


@pytest.mark.parametrize("key", ["ff", "ed a0 80", "e2 82"])
def test_a_header_key_that_is_not_utf_8_is_text_as_in_java(key: str) -> None:
    """`tests/oracle` compares many more with Java."""
    raw = bytes.fromhex(key)
    body = bytes.fromhex("00 00 00 01 01 02") + bytes([2 * len(raw)]) + raw + b"\x01"

    [record] = decode_hand_made(bytes([2 * len(body)]) + body, 1)

    assert record.headers == (("\N{REPLACEMENT CHARACTER}", None),)


@pytest.mark.parametrize("body", ["0e 00 00 00 8100 01 00", "0e 00 00 00 01 8100 00"])
def test_a_null_in_more_bytes_than_it_needs_is_null_as_in_java(body: str) -> None:
    assert decode_hand_made(bytes.fromhex(body), 1) == [Record(0, 0, None, None)]


def decode_hand_made(body: bytes, count: int) -> list[Record]:
    builder = BatchBuilder()
    builder.append(0, None, None)
    batch = builder.build()[:61] + body
    batch[8:12] = (49 + len(body)).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    return decode_records(batch, read_header(batch), LIMIT)


def test_the_smallest_record_is_accepted_by_the_same_route() -> None:
    assert decode_hand_made(bytes.fromhex("0c 00 00 00 01 01 00"), 1) == [Record(0, 0, None, None)]


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_counts_are_checked_before_anything_is_made(count: int) -> None:
    with pytest.raises(CorruptRecord):
        decode_hand_made(bytes.fromhex("0c 00 00 00 01 01 00"), count)


def test_an_empty_batch_left_by_compaction_has_no_records() -> None:
    assert decode_hand_made(b"", 0) == []


def test_gaps_left_by_compaction_are_kept() -> None:
    batch = sample()
    batch[23:27] = (9).to_bytes(4, "big")
    assert read_header(batch).last_offset == 9
    assert [record.offset for record in decode_records(batch, read_header(batch), LIMIT)] == [0, 1]


def test_another_magic_or_size_is_refused() -> None:
    batch = sample()
    with pytest.raises(CorruptRecord):
        decode_records(batch[:-1], read_header(batch), LIMIT)
    batch[16] = 1
    with pytest.raises(CorruptRecord, match="magic 1"):
        decode_records(batch, read_header(batch), LIMIT)


def test_a_bomb_in_a_batch_is_refused() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(0, None, bytes(8 << 20))
    batch = builder.build()
    with pytest.raises(CorruptRecord):
        decode_records(batch, read_header(batch), 1 << 20)


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


DECODED_MAX = 64 << 20


def heads(batch: bytearray) -> list[RecordHead]:
    header = read_header(batch)
    return list(iter_heads(record_view(batch, header, DECODED_MAX), header))


@pytest.mark.parametrize("seed", range(20))
def test_heads_equal_the_decoded_records(seed: int) -> None:
    rng = random.Random(seed)
    builder = BatchBuilder(rng.choice(list(Codec)))
    for _ in range(rng.choice([1, 70, 9000])):
        key = None if rng.random() < 0.5 else rng.randbytes(rng.choice([0, 1, 200]))
        value = None if rng.random() < 0.3 else rng.randbytes(rng.choice([0, 5, 90]))
        items = [("name", None), ("other", b"x")] if rng.random() < 0.2 else []
        builder.append(rng.randrange(-(2**40), 2**40), key, value, items)
    batch = builder.build(base_offset=rng.choice([0, 10**12]))
    records = decode_records(batch, read_header(batch), DECODED_MAX)
    assert heads(batch) == [(r.offset, r.timestamp, r.key is not None) for r in records]


def test_the_time_of_the_broker_is_that_of_all_records() -> None:
    builder = BatchBuilder()
    for time in (5, 9, 7):
        builder.append(time, b"k", b"v")
    batch = builder.build()
    batch[22] |= 8
    assert [time for _, time, _ in heads(batch)] == [9, 9, 9]


def test_flipped_bytes_never_crash() -> None:
    builder = BatchBuilder()
    builder.append(5, b"key", b"value", [("name", b"x"), ("none", None)])
    builder.append(6, None, b"w" * 100)
    original = builder.build()
    for position in range(57, len(original)):
        for flip in (0x01, 0x02, 0x80, 0xFF):
            batch = bytearray(original)
            batch[position] ^= flip
            try:
                found = heads(batch)
            except CorruptRecord:
                continue
            assert len(found) == 2


def test_a_record_with_millions_of_headers_costs_what_any_record_does() -> None:
    plain, bomb = BatchBuilder(), BatchBuilder(Codec.ZSTD)
    plain.append(5, b"key", b"value", [("", None)])
    bomb.append(5, b"key", b"value", [("", None)] * 100_000)
    batch = bomb.build()
    assert len(batch) < 1024
    assert lines_run(lambda: heads(batch)) <= lines_run(lambda: heads(plain.build())) + 100


def test_only_the_requested_records_are_read() -> None:
    builder = BatchBuilder()
    builder.extend(5, [b""] * 100_000, 1 << 30)
    batch = builder.build()
    header = read_header(batch)
    data = record_view(batch, header, DECODED_MAX)
    assert lines_run(lambda: next(iter_heads(data, header))) < 50
