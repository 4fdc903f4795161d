"""Data files that one task writes from ranges of a log.

The schema of a batch's files, with the fields of JSON values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.client.consumer.fetch import Batch as LogBatch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.archive import files as module
from lakelog.tables.archive.commit import Batch, commit_batch
from lakelog.tables.archive.files import (
    DEAD_LETTER_SCHEMA,
    DeadLetterFile,
    RowFiles,
    TooManyPartitionsError,
    WrittenFiles,
    add_unknown,
    file_schema,
    write_ranges,
)
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.progress import ArchiveJob, Extent
from lakelog.tables.archive.refusals import OnBadRecord, RefusedCount, RefusedRecord
from lakelog.tables.hybrid.archives import plan_ranges
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import (
    ARROW_SCHEMA,
    PartitionTerm,
    parse_terms,
    with_null_timestamps,
)
from lakelog.tables.iceberg.table import admit_null_timestamps, ensure_table
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.registry.schemas import schemas_of
from lakelog.tables.topic.errors import BadRecordError, DataLossError
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from lakelog.tables.typed.columns import typed_fields
from lakelog.tables.typed.shapes import extended, shape_of
from lakelog.tables.upkeep.compaction import compact
from schema_registry import schema_registry
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, offsets
from unit.tables.hybrid.kit import archive_of
from unit.tables.hybrid.kit import offsets as wanted
from unit.tables.hybrid.test_client import found
from unit.tables.registry.avro_values import record

ENDS = {0: 9, 1: 6}
IMPOSSIBLE_MS = 2**62


class _Records(Log):
    """A log of batches of three records. The record at offset n has the value n."""

    def __init__(self, starts: dict[int, int] | None = None, timestamp: int = 1000) -> None:
        super().__init__(ENDS, starts)
        self._timestamp = timestamp

    def __enter__(self) -> _Records:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)

    def batches(self, wanted: OffsetRange) -> Iterator[LogBatch]:
        for base in range(wanted.start // 3 * 3, wanted.end, 3):
            builder = BatchBuilder()
            for offset in range(base, base + 3):
                builder.append(self._timestamp, None, b"%d" % offset)
            batch = builder.build(base_offset=base)
            yield read_header(batch), memoryview(batch)


def write(
    path: Path,
    log: Log,
    *ranges: tuple[int, int, int],
    skip_lost: bool = False,
    raw_timestamp_id: int = 0,
    errors: OnBadRecord = OnBadRecord.STOP,
    typed: Sequence[pa.Field] = (),
    registry: RegistryAddress | None = None,
) -> WrittenFiles:
    """Write ranges of (partition, start, end)."""
    job = ArchiveJob(
        bootstrap="b:1",
        topic="t",
        topic_id="id",
        catalog={},
        identifier=("lakelog", "t"),
        location=path.parents[1].as_uri(),
        batch_bytes=1000,
        tasks=1,
        skip_lost=skip_lost,
        raw_timestamp_id=0,
        uuid="",
        extents={},
        errors=errors.value,
        dead_letters_location=letters(path).parents[1].as_uri(),
        registry_url=registry.url if registry else "",
    )
    schema = with_null_timestamps(raw_timestamp_id) if raw_timestamp_id else ARROW_SCHEMA
    schema = pa.schema([*schema, *typed])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TopicClient", lambda *_, **__: log)
        wanted = [OffsetRange("t", *numbers, topic_id="id") for numbers in ranges]
        return write_ranges(job, wanted, schema, path.name)


def letters(path: Path) -> Path:
    """The file of the dead letters."""
    return path.parents[1] / "letters" / "data" / path.name


def rows(path: Path) -> list[tuple[int, int, bytes]]:
    found = pq.ParquetFile(path).read().to_pylist()
    return [(row["partition"], row["offset"], row["value"]) for row in found]


def rows_of(path: Path, *columns: str) -> list[tuple[int, ...]]:
    found = pq.ParquetFile(path).read(list(columns)).to_pylist()
    return [tuple(row[column] for column in columns) for row in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "1.parquet"


def test_a_file_has_exactly_the_offsets_of_its_ranges(path: Path) -> None:
    written = write(path, _Records(), (0, 1, 5), (1, 4, 6))

    assert (written.paths, written.rows, written.skipped) == ((path.as_uri(),), 6, [])
    assert (written.refusals.counts, written.dead_letters) == ({}, None)
    expected = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 4), (1, 5)]
    assert rows(path) == [(partition, at, b"%d" % at) for partition, at in expected]
    assert pq.read_schema(path).equals(ARROW_SCHEMA, check_metadata=True)


def test_ranges_without_records_leave_no_file(path: Path) -> None:
    assert write(path, _Records(), (0, 4, 4)).paths == ()
    assert not path.exists()


def test_a_loss_fails_the_task_and_removes_its_file(path: Path) -> None:
    with pytest.raises(DataLossError, match=r"t-1 \[0, 2\): retention or.*--skip-lost"):
        write(path, _Records({1: 2}), (0, 0, 3), (1, 0, 6))
    assert not path.exists()


def test_a_skipped_loss_is_reported_with_the_file(path: Path) -> None:
    written = write(path, _Records({1: 2}), (1, 0, 6), skip_lost=True)
    assert [str(lost) for lost in written.skipped] == ["t-1 [0, 2)"]
    assert [offset for _, offset, _ in rows(path)] == [2, 3, 4, 5]


def test_an_impossible_timestamp_fails_the_task_unless_it_may_be_null(path: Path) -> None:
    log = _Records(timestamp=IMPOSSIBLE_MS)
    with pytest.raises(
        BadRecordError, match=r"t-0@0: .*Repeat with --null-timestamps.*dead-letter"
    ):
        write(path, log, (0, 0, 1))
    assert not path.exists()

    write(path, log, (0, 0, 1), raw_timestamp_id=12)
    (row,) = pq.ParquetFile(path).read().to_pylist()
    assert (row["timestamp"], row["rawTimestamp"]) == (None, IMPOSSIBLE_MS)


def test_refused_records_go_to_the_dead_letters_or_are_counted(path: Path) -> None:
    log = _Records(timestamp=IMPOSSIBLE_MS)
    written = write(path, log, (0, 1, 3), (1, 4, 5), errors=OnBadRecord.DEAD_LETTER)
    assert (written.paths, written.rows) == ((), 0)
    assert written.refusals.counts == {0: RefusedCount(2, 0), 1: RefusedCount(1, 0)}
    dead_letters = letters(path)
    assert written.dead_letters == dead_letters.as_uri()
    assert rows_of(dead_letters, "partition", "offset") == [(0, 1), (0, 2), (1, 4)]
    dead_letters.unlink()

    written = write(path, log, (0, 1, 3), errors=OnBadRecord.SKIP)
    assert written.refusals.counts == {0: RefusedCount(0, 2)}
    assert (written.dead_letters, list(path.parents[1].rglob("*.parquet"))) == (None, [])


def test_a_loss_removes_the_dead_letters_too(path: Path) -> None:
    log = _Records({1: 2}, timestamp=IMPOSSIBLE_MS)
    with pytest.raises(DataLossError):
        write(path, log, (0, 0, 3), (1, 0, 6), errors=OnBadRecord.DEAD_LETTER)
    assert not list(path.parents[1].rglob("*.parquet"))


def test_a_large_range_is_written_in_groups_that_bound_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_MAX", 1)
    write(path, _Records(), (0, 0, 9), (1, 0, 3))
    assert pq.ParquetFile(path).num_row_groups == 2
    assert len(rows(path)) == 12


def test_a_file_of_another_task_is_not_overwritten(path: Path) -> None:
    write(path, _Records(), (0, 0, 3))
    with pytest.raises(FileExistsError):
        write(path, _Records(), (0, 3, 6))


class _Values(_Records):
    """A log with these values at the first offsets of partition 0."""

    def __init__(self, *values: bytes) -> None:
        super().__init__()
        self._values = values

    def batches(self, wanted: OffsetRange) -> Iterator[LogBatch]:
        builder = BatchBuilder()
        for value in self._values:
            builder.append(1000, None, value)
        batch = builder.build(base_offset=0)
        yield read_header(batch), memoryview(batch)


def test_values_are_read_with_the_schemas_that_they_name(path: Path) -> None:
    log = _Values(b"\0\0\0\0\1\x02", b"\0\0\0\0\2\x04\x06", b"damaged")
    with schema_registry() as registry:
        registry.register("t-value", record("long"))
        registry.register("t-value", record("long", "long"))
        address = RegistryAddress(registry.url)
        data = extended(pa.struct([]), schemas_of(address).get(1).shape)
        typed = [pa.field("data", data), pa.field("rescued", pa.large_string())]

        with pytest.raises(BadRecordError, match=r"t-0@2: the value cannot be read: .*--errors"):
            write(path, log, (0, 0, 3), typed=typed, registry=address)
        assert not path.exists()

        skipping = OnBadRecord.SKIP
        written = write(path, log, (0, 0, 3), typed=typed, registry=address, errors=skipping)
    assert (written.rows, written.refusals.counts) == (3, {}), "its bytes are in the row"
    found = pq.ParquetFile(path).read(["value", "data", "rescued"]).to_pylist()
    assert [row["data"] for row in found] == [{"f0": 1}, {"f0": 2}, None]
    assert [row["rescued"] for row in found][:2] == [None, '{"$.f1":3}']
    assert "begins with byte 100" in found[2]["rescued"]
    assert found[2]["value"] == b"damaged"
    assert [list(shape.fields) for shape in written.unknown] == [["f0", "f1"]]


TASKS = [[OffsetRange("orders", 0, 0, 1)]]


class Records:
    def __init__(self, value: bytes = b'{"a": 1}') -> None:
        self._value = value

    def batches(self, wanted: OffsetRange) -> Iterator[LogBatch]:
        builder = BatchBuilder()
        builder.append(0, None, self._value)
        data = builder.build(base_offset=wanted.start)
        yield read_header(data), memoryview(data)


def job(
    address: TableAddress, *, is_json: bool = False, registry_url: str = "", version: int = 0
) -> ArchiveJob:
    return ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id="id",
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1000,
        tasks=2,
        raw_timestamp_id=0,
        skip_lost=False,
        uuid=address.uuid,
        extents={},
        is_json=is_json,
        registry_url=registry_url,
        registry_version=version,
    )


def test_fields_of_a_batch_are_columns_of_its_files(address: TableAddress) -> None:
    plain = job(address, is_json=False)
    assert file_schema(plain, Records(), TASKS) == plain.schema
    assert typed_fields(address.load()) == []

    schema = file_schema(job(address, is_json=True), Records(), TASKS)
    assert schema.names == [*plain.schema.names, "data", "rescued"]
    assert [each.name for each in schema.field("data").type] == ["a"]
    assert schema.field("data").type.field(0).metadata


def test_fields_of_the_schemas_of_a_batch_are_columns_of_its_files(address: TableAddress) -> None:
    with schema_registry() as registry:
        asking = job(address, registry_url=registry.url)
        registry.register("orders-value", record("int"))
        schema = file_schema(asking, Records(b"\0\0\0\0\1"), TASKS)
        registry.register("orders-value", record("long", ["null", "string"]))
        wider = file_schema(asking, Records(b"\0\0\0\0\2"), TASKS)

        assert [(each.name, each.type) for each in schema.field("data").type] == [
            ("f0", pa.int32())
        ]
        assert [(each.name, each.type) for each in wider.field("data").type] == [
            ("f0", pa.int64()),
            ("f1", pa.large_string()),
        ]
        count = len(registry.requests)
        assert file_schema(asking, Records(b"\0\0\0\0\1"), TASKS) == wider
        assert len(registry.requests) == count, "a batch needs no request"
        add_unknown(asking, [shape_of([{"rare": True}])])
        assert "rare" in [each.name for each in typed_fields(address.load())[0].type]


def test_fields_of_values_without_ids_are_of_one_version(address: TableAddress) -> None:
    with schema_registry() as registry:
        registry.register("orders-value", record("int"))
        registry.register("orders-value", record("int", "int"))
        asking = job(address, registry_url=registry.url, version=1)
        schema = file_schema(asking, Records(b"\0\0\0\0\2"), TASKS)
    assert [each.name for each in schema.field("data").type] == ["f0"]


def test_fields_that_tasks_found_are_columns_of_later_files(address: TableAddress) -> None:
    found = [shape_of([]), shape_of([{"rare": True}])]
    add_unknown(job(address, is_json=False), found)
    assert typed_fields(address.load()) == []
    add_unknown(job(address, is_json=True), found)
    assert [each.name for each in typed_fields(address.load())[0].type] == ["rare"]


def test_a_failure_after_the_commit_is_logged_only(
    address: TableAddress, caplog: pytest.LogCaptureFixture
) -> None:
    with address.load().update_schema() as update:
        from pyiceberg.types import LongType

        update.add_column("data", LongType())
    with caplog.at_level(logging.INFO, "lakelog.tables"):
        add_unknown(job(address, is_json=True), [shape_of([{"a": 1}])])
    assert "new fields of 'orders' are added later" in caplog.text


START = datetime(2024, 1, 1, tzinfo=UTC)
DAY = parse_terms(["day(timestamp)"])


def hourly(first: int, end: int, *, hours: int = 12) -> pa.RecordBatch:
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
    files.add(hourly(0, 5))
    files.add(hourly(5, 7))
    (path,) = files.close()
    assert (path, offsets_of(path)) == ((tmp_path / "1.parquet").as_uri(), list(range(7)))


def test_each_day_has_a_file_in_the_order_of_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_MAX", 200)
    files = files_in(tmp_path, DAY)
    for first in range(0, 6, 3):
        files.add(hourly(first, first + 3))
    paths = files.close()
    assert [offsets_of(path) for path in paths] == [[0, 1], [2, 3], [4, 5]]
    assert len(set(paths)) == 3


def test_too_many_partitions_are_an_error_and_leave_no_file(tmp_path: Path) -> None:
    files = files_in(tmp_path, DAY, files_max=2)
    with pytest.raises(TooManyPartitionsError, match=r"more than 2 partitions by day\(timestamp\)"):
        files.add(hourly(0, 6))
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
        batch = pa.Table.from_batches([hourly(number * 6, number * 6 + 6, hours=12)])
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
    given = hourly(0, 4).to_pylist()
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
    monkeypatch.setattr(module, "_GROUP_ROWS", 2)
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
