from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from lakelog.client.consumer.fetch import Batch, DamagedHeader
from lakelog.columns.decoding import groups
from lakelog.records.batch import HEADER, HEADER_SIZE, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import decode_records
from lakelog.tables.archive import refusals as module
from lakelog.tables.archive.refusals import (
    OnBadRecord,
    Refusals,
    RefusedCount,
    RefusedRecord,
    RowFilter,
    Span,
    stop,
)
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, with_null_timestamps
from lakelog.tables.topic.errors import BadRecordError, OptionError
from lakelog.tables.topic.offsets import OffsetRange


def refused(
    offset: int, last: int, *, partition: int = 0, is_damaged: bool = False
) -> RefusedRecord:
    return RefusedRecord("t", partition, offset, last, "it is bad", b"raw", is_damaged)


def test_a_stop_names_the_record_and_the_ways_to_go_on() -> None:
    with pytest.raises(BadRecordError, match=r"^t-0@7: it is bad\. .*--null-timestamps.*dead-lett"):
        stop(refused(7, 7))
    with pytest.raises(BadRecordError, match=r"^t-0@7: it is bad\. Set the topic's key table\.err"):
        stop(refused(7, 9, is_damaged=True))


def test_an_unknown_name_is_an_error_that_names_the_others() -> None:
    assert OnBadRecord.named("dead-letter") is OnBadRecord.DEAD_LETTER
    with pytest.raises(OptionError, match="'ignore': expected one of stop, dead-letter, skip"):
        OnBadRecord.named("ignore")


def test_refused_offsets_are_counted_and_the_first_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMED_MAX", 2)
    found = Refusals()
    for each in (refused(1, 1), refused(2, 4), refused(9, 9, partition=1), refused(11, 11)):
        found.add(each, OnBadRecord.DEAD_LETTER)
    found.add(refused(12, 12), OnBadRecord.SKIP)
    assert found.counts == {0: RefusedCount(5, 1), 1: RefusedCount(1, 0)}
    assert found.named == [Span(0, 1, 5), Span(1, 9, 10)]


BAD_MS = 2**62
WANTED = OffsetRange("t", 3, 0, 1000)


def batch(base: int, *times: int) -> Batch:
    """Return one record at each time; the record at offset n has the value n."""
    builder = BatchBuilder()
    for delta, time in enumerate(times):
        builder.append(time, None, b"%d" % (base + delta), [("h", b"x")])
    data = builder.build(base_offset=base)
    return read_header(data), memoryview(data)


def damaged(base: int, count: int) -> Batch:
    """Return a batch whose first record has no length."""
    header, content = batch(base, *[1] * count)
    broken = bytearray(content)
    broken[HEADER_SIZE] = 0xFF
    return header, memoryview(broken)


def sift(
    batches: Iterable[Batch], wanted: OffsetRange = WANTED, schema: pa.Schema = ARROW_SCHEMA
) -> tuple[list[int], list[RefusedRecord]]:
    refused: list[RefusedRecord] = []
    rows = list(RowFilter(schema, refused.append).convert(wanted, batches))
    assert all(each.schema == schema and each.num_rows for each in rows)
    found = [row for each in rows for row in each.to_pylist()]
    assert [row["value"] for row in found] == [b"%d" % row["offset"] for row in found]
    return [row["offset"] for row in found], refused


def test_good_records_are_rows_and_nothing_is_refused() -> None:
    assert sift([batch(0, 1, 2), batch(4, 3)]) == ([0, 1, 4], [])


def test_a_record_with_an_impossible_timestamp_is_refused_alone() -> None:
    found, (refused,) = sift([batch(0, 1, 2), batch(2, 1, BAD_MS, 1), batch(5, 1)])
    assert found == [0, 1, 2, 4, 5]
    assert str(refused) == (
        f"t-3@3: the timestamp {BAD_MS} (milliseconds) is not within the years 1 to 9999"
    )
    (record,) = decode_records(refused.raw, read_header(refused.raw), MAX_DECOMPRESSED_BYTES)
    assert (record.offset, record.timestamp, record.value) == (3, BAD_MS, b"3")
    assert record.headers == (("h", b"x"),)


def test_a_damaged_batch_is_refused_with_its_bytes() -> None:
    bad = damaged(2, 3)
    found, (refused,) = sift([batch(0, 1, 2), bad, batch(5, 1)])
    assert found == [0, 1, 5]
    assert (refused.offset, refused.offset_last, refused.raw) == (2, 4, bytes(bad[1]))
    assert "the batch of the offsets 2 to 4 cannot be read" in refused.reason
    assert refused.is_damaged


def test_only_the_wanted_part_of_a_batch_is_refused() -> None:
    wanted = OffsetRange("t", 3, 3, 6)
    found, (refused,) = sift([damaged(0, 5), batch(5, 1, 1)], wanted)
    assert found == [5]
    assert (refused.offset, refused.offset_last) == (3, 4)
    found, refusals = sift([batch(0, 1, BAD_MS, 1, BAD_MS, 1, 1, BAD_MS)], wanted)
    assert found == [4, 5]
    assert [each.offset for each in refusals] == [3]


def test_a_nullable_timestamp_accepts_every_number() -> None:
    schema = with_null_timestamps(12)
    found, refused = sift([batch(0, BAD_MS), damaged(1, 2), batch(3, 1)], schema=schema)
    assert found == [0, 3]
    assert [each.offset for each in refused] == [1]


def test_rows_before_a_bad_group_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of few records, so that some are decoded before the bad ones and some after."""
    monkeypatch.setattr(groups, "_ROWS_MAX", 4)
    batches = [batch(at, 1, BAD_MS if at % 6 == 2 else 1) for at in range(0, 40, 2)]
    found, refused = sift(batches)
    bad = [at + 1 for at in range(0, 40, 2) if at % 6 == 2]
    assert [each.offset for each in refused] == bad
    assert found == [at for at in range(40) if at not in bad]


def test_an_error_of_the_decision_ends_the_conversion() -> None:
    def refuse(each: RefusedRecord) -> None:
        raise RuntimeError(str(each.offset))

    rows = RowFilter(ARROW_SCHEMA, refuse).convert(WANTED, [batch(0, 1), batch(1, BAD_MS)])
    assert next(rows).num_rows == 1
    with pytest.raises(RuntimeError, match="1"):
        next(rows)


def test_a_batch_with_a_wrong_checksum_is_refused_although_it_decodes() -> None:
    _, content = batch(2, 1, 1)
    changed = bytearray(content)
    changed[-3] ^= 1
    bad = DamagedHeader(*HEADER.unpack_from(changed)), memoryview(changed)
    found, (refused,) = sift([batch(0, 1, 2), bad, batch(4, 1)])
    assert found == [0, 1, 4]
    assert (refused.offset, refused.offset_last, refused.raw) == (2, 3, bytes(changed))
    assert refused.reason.endswith("cannot be read: its checksum is wrong")
