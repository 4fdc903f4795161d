from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pyarrow as pa
import pytest

from lakelog.client.consumer.batches import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid.files import ArchivedFile
from lakelog.tables.hybrid.plan import PlannedRange, plan_ranges
from lakelog.tables.hybrid.reading import HybridReading
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import ArchiveUnreadableError, DataLossError, RecordsRemovedError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.rows import ArrowRows
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, write_batch
from unit.tables.hybrid.kit import archive_of, offsets

SCHEMA = pa.schema([("offset", pa.int64())])


def reading(rows: type[ArchivedRows] = ArchivedRows) -> HybridReading:
    def no_loss(_: OffsetRange, error: DataLossError) -> NoReturn:
        raise error

    def no_client() -> NoReturn:
        raise AssertionError("the table has all the offsets")

    return HybridReading(
        rows(SCHEMA, {}, null_timestamps=False, hint=""),
        ArrowRows(SCHEMA, null_timestamps=False, hint=""),
        no_client,
        no_loss,
    )


def found(plan: list[PlannedRange]) -> list[int]:
    return [
        offset
        for part in plan
        for batch in reading().read(part)
        for offset in batch.column("offset").to_pylist()
    ]


@pytest.fixture
def plan(address: TableAddress) -> list[PlannedRange]:
    for number in range(3):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    return plan_ranges([offsets(0, 30)], {"orders": archive_of(address)})


def replace_files(address: TableAddress) -> None:
    """Compact the table and remove the files that were replaced."""
    table = address.load()
    rows = table.scan().to_arrow()
    old = [task.file.file_path for task in table.scan().plan_files()]
    with table.transaction() as transaction:
        transaction.overwrite(rows)
    for path in old:
        Path(path.removeprefix("file://")).unlink()


def test_archived_offsets_need_no_broker(plan: list[PlannedRange]) -> None:
    assert found(plan) == list(range(30))


def test_a_plan_survives_the_removal_of_its_files(
    address: TableAddress, plan: list[PlannedRange]
) -> None:
    (part,) = plan
    batches = reading().read(part)
    first = next(batches).column("offset").to_pylist()
    replace_files(address)
    rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert first + rest == list(range(30))
    assert found(plan) == list(range(30))


class _Removed(ArchivedRows):
    """Each file is removed when one of its rows has been read."""

    def read(self, wanted: OffsetRange, files: Sequence[ArchivedFile]) -> Iterator[pa.RecordBatch]:
        for batch in super().read(wanted, files):
            yield batch.slice(0, 1)
            raise FileNotFoundError


def test_files_may_be_removed_again_and_again_while_rows_are_read(plan: list[PlannedRange]) -> None:
    (part,) = plan
    batches = reading(_Removed).read(part)
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == [*range(30)]


def test_a_missing_file_of_the_newest_snapshot_is_an_error(
    address: TableAddress, plan: list[PlannedRange]
) -> None:
    (task, *_) = address.load().scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(ArchiveUnreadableError, match="is missing, also in its newest snapshot"):
        found(plan)


def test_a_table_that_was_replaced_is_an_error(
    address: TableAddress, plan: list[PlannedRange]
) -> None:
    for task in address.load().scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()
    open_catalog(address.catalog).drop_table(address.identifier)
    with pytest.raises(ArchiveUnreadableError, match="was dropped"):
        found(plan)


class _Trimmed(Log):
    """A log whose first records were removed after the plan."""

    def __init__(self, folder: str) -> None:
        super().__init__({0: 12}, {0: 10})
        self.topic_id = TOPIC_ID
        self.keys = {"table.enable": "true", "table.warehouse": folder}

    def __enter__(self) -> _Trimmed:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        for offset in range(wanted.start, wanted.end):
            builder = BatchBuilder()
            builder.append(1000, None, b"v")
            batch = builder.build(base_offset=offset)
            yield read_header(batch), memoryview(batch)


def test_records_of_the_first_commit_are_found_although_the_plan_knew_no_table(
    address: TableAddress, tmp_path: Path
) -> None:
    """The topic had no table when the query was planned; then it was archived and trimmed."""
    plan = plan_ranges([offsets(3, 12)], {})
    commit_batch(address, write_batch(address, 0, 12))

    def read(*, finds_tables: bool) -> list[int]:
        log = cast("TopicClient", _Trimmed(str(tmp_path)))
        joined = replace(reading(), open_client=lambda: log, finds_tables=finds_tables)
        batches = [batch for part in plan for batch in joined.read(part)]
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    assert read(finds_tables=True) == list(range(3, 12))
    with pytest.raises(RecordsRemovedError):
        read(finds_tables=False)
