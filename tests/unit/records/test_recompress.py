from __future__ import annotations

import pytest

from lakelog.records.batch import CorruptRecord, check_crc, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.recompress import with_codec
from lakelog.records.record import decode_records

LIMIT = 1 << 20


def make(codec: Codec) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(50):
        builder.append(1_000 + number, b"key", b"value %d" % number, [("h", None), ("g", b"x")])
    return builder.build(producer_id=7, producer_epoch=2, base_sequence=40)


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_only_the_wrapping_changes(before: Codec, after: Codec) -> None:
    batch = make(before)
    header = read_header(batch)
    changed = with_codec(batch, header, after, LIMIT)
    now = read_header(changed)
    assert now.size == len(changed)
    assert now.codec == after
    assert check_crc(changed, 0, now)
    assert decode_records(changed, now, LIMIT) == decode_records(batch, header, LIMIT)
    assert (now.producer_id, now.producer_epoch, now.base_sequence) == (7, 2, 40)
    assert (now.base_timestamp, now.max_timestamp) == (1_000, 1_049)


def test_a_bomb_is_not_unwrapped() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(0, None, bytes(4 << 20))
    batch = builder.build()
    with pytest.raises(CorruptRecord):
        with_codec(batch, read_header(batch), Codec.NONE, LIMIT)
