from __future__ import annotations

import random

import pytest

from counted_work import lines_run
from lakelog.records.batch import CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.heads import RecordHead, iter_heads
from lakelog.records.record import decode_records, record_view

LIMIT = 64 << 20


def heads(batch: bytearray) -> list[RecordHead]:
    header = read_header(batch)
    return list(iter_heads(record_view(batch, header, LIMIT), header))


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
    records = decode_records(batch, read_header(batch), LIMIT)
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
    data = record_view(batch, header, LIMIT)
    assert lines_run(lambda: next(iter_heads(data, header))) < 50
