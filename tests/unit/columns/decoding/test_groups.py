"""Groups of batches that a decoder reads together."""

from __future__ import annotations

import pytest

from lakelog.columns.decoding import groups
from lakelog.columns.decoding.groups import group_batches, header_rows
from lakelog.records.batch import BatchHeader, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec

NO_LIMIT = 1 << 30


def batch(
    count: int, *, base: int = 0, codec: Codec = Codec.NONE, control: bool = False
) -> tuple[BatchHeader, bytearray]:
    builder = BatchBuilder(codec)
    for _ in range(count):
        builder.append(0, None, b"v" * 100)
    data = builder.build(base_offset=base, is_control=control)
    return read_header(data), data


def sizes(*batches: tuple[BatchHeader, bytearray]) -> list[tuple[int, int]]:
    """Return the base offset and the number of records of each group."""
    found = group_batches(batches, NO_LIMIT)
    return [(group.base_offset, group.rows_max) for group in found]


def test_a_group_ends_before_it_exceeds_the_limit_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "_ROWS_MAX", 10)
    found = sizes(batch(6), batch(4, base=6), batch(1, base=10))
    assert found == [(0, 10), (10, 1)]


def test_a_group_ends_before_it_exceeds_the_limit_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (group,) = group_batches([batch(2)], NO_LIMIT)
    monkeypatch.setattr(groups, "_BYTES_MAX", 2 * group.size_bytes)
    assert sizes(*(batch(2, base=2 * n) for n in range(3))) == [(0, 4), (4, 2)]


def test_a_batch_that_exceeds_the_limits_alone_is_a_group_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "_ROWS_MAX", 3)
    assert sizes(batch(5), batch(5, base=5)) == [(0, 5), (5, 5)]


def test_control_batches_are_left_out_and_no_group_is_empty() -> None:
    marker = batch(1, control=True)
    assert sizes(marker, batch(2, base=1), marker) == [(1, 2)]
    assert sizes(marker) == []


def test_a_group_holds_decompressed_records() -> None:
    plain, packed = (
        next(group_batches([batch(50, codec=codec)], NO_LIMIT))
        for codec in (Codec.NONE, Codec.ZSTD)
    )
    assert packed.size_bytes == plain.size_bytes > 50 * 100


def test_a_batch_that_decompresses_beyond_the_limit_is_named() -> None:
    with pytest.raises(CorruptRecord, match="the batch at offset 7 is damaged"):
        list(group_batches([batch(50, base=7, codec=Codec.ZSTD)], 1000))


def test_a_batch_that_does_not_decompress_is_named() -> None:
    header, data = batch(50, base=7, codec=Codec.ZSTD)
    data[61:71] = bytes(10)
    with pytest.raises(CorruptRecord, match="the batch at offset 7 is damaged"):
        list(group_batches([(header, data)], NO_LIMIT))


def test_a_record_without_headers_has_null_as_in_the_official_connector() -> None:
    assert header_rows(()) is None
    assert header_rows((("h", None),)) == [{"key": "h", "value": None}]
