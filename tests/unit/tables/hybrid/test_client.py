from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, cast

import pyarrow as pa
import pytest

from lakelog.client.consumer.fetch import Batch
from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import client as joined
from lakelog.tables.hybrid.archives import ArchivedFile, PlannedRange, TopicArchive, plan_ranges
from lakelog.tables.hybrid.client import HybridClient, HybridReading, first_at
from lakelog.tables.hybrid.rows import ArchivedRows
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import (
    ArchiveUnreadableError,
    DataLossError,
    OptionError,
    RecordsRemovedError,
)
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from lakelog.tables.topic.rows import ArrowRows
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, write_batch
from unit.tables.hybrid.kit import archive_of, offsets

KEY = ("orders", 0)


@dataclass
class PlacesLog:
    """The broker's answers: the log of `orders` is [start, 20), record n is of second n."""

    start: int

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        def place(time: int) -> OffsetAt:
            if time == LATEST:
                return OffsetAt(20, -1, 4)
            first = self.start if time == EARLIEST else max(self.start, -(-time // 1000))
            return OffsetAt(first, -1, 4)

        return {key: place(time) for key, time in wanted.items()}


@pytest.fixture
def log(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> PlacesLog:
    """The table of `orders` has [2, 12)."""
    commit_batch(address, write_batch(address, 2, 12))
    log = PlacesLog(10)

    def opened(_: TopicClient, topics: Iterable[str]) -> dict[str, TopicArchive]:
        return {"orders": archive_of(address)} if "orders" in set(topics) else {}

    monkeypatch.setattr(joined, "open_archives", opened)
    monkeypatch.setattr(TopicClient, "places", lambda _, wanted: log.places(wanted))
    return log


def client(*, read_committed: bool = True) -> HybridClient:
    return HybridClient("h:1", client_id="test", read_committed=read_committed)


@pytest.mark.parametrize(
    ("time", "offset"),
    [(EARLIEST, 2), (LATEST, 20), (0, 2), (5_500, 6), (10_000, 10), (15_000, 15)],
)
def test_a_topic_begins_where_its_table_begins(log: PlacesLog, time: int, offset: int) -> None:
    with client() as asked:
        assert asked.places({KEY: time})[KEY].offset == offset


def test_a_log_with_all_archived_records_answers_itself(log: PlacesLog) -> None:
    log.start = 0
    with client() as asked:
        assert asked.places({KEY: EARLIEST})[KEY] == OffsetAt(0, -1, 4)


def test_another_topic_has_no_table(log: PlacesLog) -> None:
    with client() as asked:
        assert asked.places({("other", 0): EARLIEST})[("other", 0)].offset == 10
        assert asked.archives([offsets(2, 20)]).keys() == {"orders"}


def test_uncommitted_records_come_from_the_log_or_not_at_all(log: PlacesLog) -> None:
    with client(read_committed=False) as asked:
        assert asked.archives([offsets(10, 20)]) == {}
        with pytest.raises(OptionError, match=r"\[9, 20\): the log begins at offset 10"):
            asked.archives([offsets(9, 20)])


def test_the_first_archived_record_at_or_after_a_time(address: TableAddress) -> None:
    for number in range(2):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archive = archive_of(address)  # record n is of second n
    assert first_at(archive, offsets(0, 20), 0) == 0
    assert first_at(archive, offsets(0, 20), 12_001) == 13
    assert first_at(archive, offsets(0, 20), 19_001) is None
    assert first_at(archive, offsets(0, 13), 13_000) is None


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
