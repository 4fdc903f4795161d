from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.tables.archive import task_files
from lakelog.tables.archive.commit import Batch, commit_batch
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.progress import Extent
from lakelog.tables.archive.refusals import RefusedRecord
from lakelog.tables.archive.task_files import (
    DEAD_LETTER_SCHEMA,
    DeadLetterFile,
    RowFiles,
    TooManyPartitionsError,
)
from lakelog.tables.hybrid.files import plan_ranges
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, with_null_timestamps
from lakelog.tables.iceberg.partition_terms import PartitionTerm, parse_terms
from lakelog.tables.iceberg.table import admit_null_timestamps, ensure_table
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.upkeep.compaction import compact
from unit.tables.archive_table import TOPIC_ID, offsets
from unit.tables.hybrid.kit import archive_of
from unit.tables.hybrid.kit import offsets as wanted
from unit.tables.hybrid.test_client import found

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY = parse_terms(["day(timestamp)"])


def rows(first: int, end: int, *, hours: int = 12) -> pa.RecordBatch:
    """Return offsets of partition 0, so many hours apart."""
    written = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": START + timedelta(hours=hours * offset),
            "timestampType": 0,
            "value": b"v",
        }
        for offset in range(first, end)
    ]
    return pa.RecordBatch.from_pylist(written, ARROW_SCHEMA)


def offsets_of(path: str) -> list[int]:
    found: list[int] = pq.ParquetFile(path.removeprefix("file://")).read()["offset"].to_pylist()
    return found


def files_in(folder: Path, terms: tuple[PartitionTerm, ...], files_max: int = 9) -> RowFiles:
    return RowFiles((folder / "1.parquet").as_uri(), ARROW_SCHEMA, {}, terms, files_max)


def test_without_terms_there_is_one_file_or_none(tmp_path: Path) -> None:
    files = files_in(tmp_path, ())
    assert files.close() == ()
    files.add(rows(0, 5))
    files.add(rows(5, 7))
    (path,) = files.close()
    assert (path, offsets_of(path)) == ((tmp_path / "1.parquet").as_uri(), list(range(7)))


def test_each_day_has_a_file_in_the_order_of_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "_BYTES_MAX", 200)
    files = files_in(tmp_path, DAY)
    for first in range(0, 6, 3):
        files.add(rows(first, first + 3))
    paths = files.close()
    assert [offsets_of(path) for path in paths] == [[0, 1], [2, 3], [4, 5]]
    assert len(set(paths)) == 3


def test_too_many_partitions_are_an_error_and_leave_no_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, DAY, files_max=2)
    with pytest.raises(TooManyPartitionsError, match=r"more than 2 partitions by day\(timestamp\)"):
        files.add(rows(0, 6))
    files.remove()
    assert not list(tmp_path.iterdir())


def test_a_partitioned_table_keeps_its_spec_through_compaction(tmp_path: Path) -> None:
    """PyIceberg finds the partition values of files that the archive or a compaction has written.

    Plans read the rows in the order of offsets, although the offsets of the files overlap.
    """
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "orders"))
    ensure_table(address, partition_by=DAY)
    for number in range(4):
        # Offsets alternate between two days.
        batch = pa.Table.from_batches([rows(number * 6, number * 6 + 6, hours=12)])
        shifted = [START + timedelta(days=at % 2) for at in range(6)]
        index = ARROW_SCHEMA.get_field_index("timestamp")
        field = ARROW_SCHEMA.field(index)
        batch = batch.set_column(index, field, pa.array(shifted, field.type))
        path = f"{address.load().location()}/data/{number}.parquet"
        files = RowFiles(path, ARROW_SCHEMA, {}, DAY)
        for each in batch.to_batches():
            files.add(each)
        extents = {0: Extent(number * 6, number * 6 + 6, 0)}
        commit_batch(address, Batch(TOPIC_ID, "query", number, extents, files.close()))

    def partitions() -> list[int]:
        tasks = address.load().scan().plan_files()
        return sorted(int(each.file.partition[0]) for each in tasks)

    first = (START.date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    assert partitions() == [first] * 4 + [first + 1] * 4
    assert found(plan_ranges([wanted(3, 20)], {"orders": archive_of(address)})) == list(
        range(3, 20)
    )

    done = compact(address, "orders", TOPIC_ID, files_min=2)
    assert (done.files_before, done.files_after, partitions()) == (8, 2, [first, first + 1])
    assert agreed_progress(address.load(), TOPIC_ID).ends == {0: 24}
    assert offsets(address.load()) == list(range(24))
    for task in address.load().scan().plan_files():
        in_file = offsets_of(task.file.file_path)
        assert in_file == sorted(in_file)
    assert found(plan_ranges([wanted(0, 24)], {"orders": archive_of(address)})) == list(range(24))


def test_rows_without_a_timestamp_have_a_partition_of_their_own(tmp_path: Path) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "orders"))
    ensure_table(address, partition_by=DAY)
    schema = with_null_timestamps(admit_null_timestamps(address))
    given = rows(0, 4).to_pylist()
    given[2] |= {"timestamp": None, "rawTimestamp": 2**62}
    files = RowFiles(f"{address.load().location()}/data/1.parquet", schema, {}, DAY)
    files.add(pa.RecordBatch.from_pylist(given, schema))
    extents = {0: Extent(0, 4, 0)}
    commit_batch(address, Batch(TOPIC_ID, "query", 0, extents, files.close()))
    values = [each.file.partition[0] for each in address.load().scan().plan_files()]
    assert values.count(None) == 1
    assert offsets(address.load()) == [0, 1, 2, 3]


def dead_letter(offset: int) -> RefusedRecord:
    return RefusedRecord("t", 1, offset, offset + 1, "why", bytes([offset]), is_damaged=True)


def test_a_file_has_the_dead_letters_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "_GROUP_ROWS", 2)
    path = tmp_path / "data" / "1.parquet"
    file = DeadLetterFile(path.as_uri(), {})
    for offset in range(0, 10, 2):
        file.add(dead_letter(offset))
    assert file.close() == path.as_uri()
    found = pq.ParquetFile(path)
    assert found.num_row_groups == 3
    table = found.read()
    assert table.schema.equals(DEAD_LETTER_SCHEMA, check_metadata=True)
    assert table.to_pylist()[1] == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "offsetLast": 3,
        "reason": "why",
        "raw": b"\2",
    }


def test_without_dead_letters_there_is_no_file(tmp_path: Path) -> None:
    file = DeadLetterFile((tmp_path / "1.parquet").as_uri(), {})
    assert file.close() is None
    file.remove()
    assert not list(tmp_path.iterdir())


def test_a_removed_file_leaves_nothing(tmp_path: Path) -> None:
    file = DeadLetterFile((tmp_path / "1.parquet").as_uri(), {})
    file.add(dead_letter(0))
    file.remove()
    assert not list(tmp_path.iterdir())
