"""Batches whose header and checksum are right, but whose records contradict the header."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakelog.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from lakelog.records.compression import Codec, compress
from lakelog.records.crc import crc32c
from lakelog.records.varint import encode_varint
from storage_kit import NOW

COUNT_MAX = (1 << 31) - 1
_CRC_START = 21


@dataclass(frozen=True)
class Poison:
    """`content` is the uncompressed form of the batch's records."""

    name: str
    content: bytes
    count: int = 1
    max_timestamp: int = NOW


def sealed(
    payload: bytes,
    codec: int,
    count: int,
    *,
    max_timestamp: int = NOW,
    time_ms: int = NOW,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """Return a batch of a header and this payload, with a valid checksum."""
    batch = bytearray(HEADER_SIZE)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    fields = (codec, count - 1, time_ms, max_timestamp, *producer, count)
    HEADER.pack_into(batch, 0, 0, length, 0, MAGIC, 0, *fields)
    batch += payload
    batch[17:_CRC_START] = crc32c(memoryview(batch)[_CRC_START:]).to_bytes(4, "big")
    return batch


def poisoned(poison: Poison, codec: int, *, now_ms: int = NOW) -> bytearray:
    """`now_ms` stands for the time of the records."""
    newest = poison.max_timestamp - NOW + now_ms
    payload = compress(codec, poison.content)
    return sealed(payload, codec, poison.count, max_timestamp=newest, time_ms=now_ms)


def framed(body: bytes) -> bytes:
    """A record from its attributes on, with its length."""
    return encode_varint(len(body)) + body


def record(delta: int, *, time: int = 0, key: bytes = b"\x01", rest: bytes = b"\x02v\x00") -> bytes:
    """`key` and `rest` are encoded as they stand: key, then value and headers."""
    return framed(b"\x00" + encode_varint(time) + encode_varint(delta) + key + rest)


_TWO = record(0) + record(1)

REFUSED = (
    Poison("a record fewer", _TWO, 3),
    Poison("a record more", _TWO, 1),
    Poison("no records", b"", 1),
    Poison("all zero", bytes(40), 2),
    Poison("a byte behind", _TWO + b"\x00", 2),
    Poison("a record that is cut off", _TWO[:-1], 2),
    Poison("a length beyond the end", b"\x7e" + _TWO[1:], 2),
    Poison("a length that does not end", b"\xff" * 12 + _TWO, 2),
    Poison("a negative length", encode_varint(-7) + _TWO, 2),
    Poison("a longer length than the fields", framed(record(0)[1:] + b"\x00") + record(1), 2),
    Poison("a shorter length than the fields", framed(record(0)[1:-1]) + record(1), 2),
    Poison("a key beyond its record", record(0, key=b"\x60abc") + record(1), 2),
    Poison("a value beyond its record", record(0, rest=b"\x60v\x00") + record(1), 2),
    Poison("more headers than there are", record(0, rest=b"\x02v\x04\x02h\x02x") + record(1), 2),
    Poison("a negative count of headers", record(0, rest=b"\x02v\x01") + record(1), 2),
    Poison("a header without a key", record(0, rest=b"\x02v\x02\x01\x02x") + record(1), 2),
    Poison("a header beyond its record", record(0, rest=b"\x02v\x02\x60h\x02x") + record(1), 2),
)
"""By every codec."""

OFFSETS = (
    Poison("a gap in the offsets", record(0) + record(2), 2),
    Poison("an offset twice", record(0) + record(0), 2),
    Poison("offsets that fall", record(1) + record(0), 2),
    Poison("offsets from 1 on", record(1) + record(2), 2),
    Poison("a negative offset", record(-1) + record(1), 2),
)

TIMES = (
    Poison("a newer record than the header says", record(0, time=5) + record(1), 2),
    Poison("no record as new as the header says", _TWO, 2, NOW + 5),
    Poison("a time before 1970", record(0, time=-NOW - 5) + record(1), 2),
)

ODD = (
    Poison("a key length of -2", record(0, key=b"\x03") + record(1), 2),
    Poison("a value length of -2", record(0, rest=b"\x03\x00") + record(1), 2),
    Poison("attributes of a record", framed(b"\x05" + record(0)[2:]) + record(1), 2),
    Poison("a header key that is not text", record(0, rest=b"\x02v\x02\x04\xff\xfe\x02x"), 1),
    Poison("a delta in more bytes than it needs", framed(b"\x00\x80\x00\x00\x01\x02v\x00"), 1),
    Poison("a delta of six bytes", framed(b"\x00\x00\x80\x80\x80\x80\x80\x00\x01\x02v\x00"), 1),
    Poison("a far future", record(0, time=1 << 40), 1),
)


def garbage() -> Iterator[tuple[str, bytearray]]:
    """Data that cannot be decompressed, by the name of the codec."""
    for codec in Codec:
        yield f"{codec.name.lower()} garbage", sealed(b"\x99garbage" * 9, codec, 2)
        if codec:
            whole = compress(codec, _TWO * 50)
            yield f"{codec.name.lower()} cut off", sealed(whole[: len(whole) // 2], codec, 100)
            yield f"{codec.name.lower()} without a byte", sealed(b"", codec, 1)
