"""The order of rows, and how many are in memory."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import rows
from lakelog.tables.hybrid.archives import ArchivedFile, files_of
from lakelog.tables.hybrid.rows import ArchivedRows, RowGroup, in_order
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.iceberg.data_file import open_input
from lakelog.tables.topic.errors import BadRecordError
from unit.tables.archive_table import write_batch
from unit.tables.hybrid.kit import archive_of, offsets

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
        ("rawTimestamp", pa.int64()),
    ]
)


def reader(schema: pa.Schema = SCHEMA, *, null_timestamps: bool = False) -> ArchivedRows:
    return ArchivedRows(schema, {}, null_timestamps=null_timestamps, hint="Use an option")


def written(
    folder: Path, numbers: list[int], partition: int = 0, **columns: object
) -> ArchivedFile:
    """A file of rows with these offsets, in row groups of four rows."""
    row = {"topic": "orders", "partition": partition, "timestamp": 1, "timestampType": 0}
    rows = [{**row, "offset": number, "value": b"%d" % number, **columns} for number in numbers]
    schema = ARROW_SCHEMA
    if "timestamp" in columns:
        index = schema.get_field_index("timestamp")
        schema = schema.set(index, schema.field(index).with_nullable(True))
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=4)
    bounds = (min(numbers), max(numbers))
    return ArchivedFile(str(path), 1, (partition, partition), bounds, ())


def values(found: object) -> list[bytes]:
    return [value for batch in found for value in batch.column("value").to_pylist()]  # type: ignore[attr-defined]


def test_rows_have_the_columns_of_the_query(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 10))
    files = files_of(archive_of(address), [offsets(0, 10)])
    (batch,) = reader().read(offsets(4, 6), files)
    assert batch.schema.names[0] == "lakelog.position"
    assert batch.column(0).to_pylist() == [4, 5]
    assert batch.select(SCHEMA.names).schema.types == SCHEMA.types
    assert batch.to_pylist()[0] == {
        "lakelog.position": 4,
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "headers": [{"key": "h", "value": b"x"}],
        "rawTimestamp": None,
    }


def test_rows_of_overlapping_files_are_in_order(tmp_path: Path) -> None:
    files = [written(tmp_path, [0, 2, 4, 6, 8, 10]), written(tmp_path, [1, 3, 5, 7, 9])]
    files += [written(tmp_path, [11, 12]), written(tmp_path, [3], partition=1)]
    found = values(reader().read(offsets(2, 12), files))
    assert found == [b"%d" % number for number in range(2, 12)]


def test_a_file_that_another_program_wrote_unsorted_is_sorted(tmp_path: Path) -> None:
    numbers = [8, 9, 0, 1, 5, 4, 3, 2, 7, 6]
    found = values(reader().read(offsets(1, 9), [written(tmp_path, numbers)]))
    assert found == [b"%d" % number for number in range(1, 9)]


def test_deleted_rows_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, list(range(10)))
    deletes = tmp_path / "deletes.parquet"
    rows = {"file_path": [file.path, "another", file.path], "pos": [1, 2, 9]}
    pq.write_table(pa.table(rows), deletes)
    merged = ArchivedFile(file.path, 1, (0, 0), (0, 9), (str(deletes),))
    found = values(reader().read(offsets(0, 10), [merged]))
    assert found == [b"0", *(b"%d" % number for number in range(2, 9))]


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    file = written(tmp_path, [0, 1])
    table = pq.read_table(file.path)
    pq.write_table(
        table.rename_columns([f"c{number}" for number in range(table.num_columns)]), file.path
    )
    assert values(reader().read(offsets(0, 2), [file])) == [b"0", b"1"]


def test_a_null_timestamp_needs_the_option(tmp_path: Path) -> None:
    file = written(tmp_path, [7], timestamp=None)
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])
    with pytest.raises(BadRecordError, match=r"^orders-0@7: .*\. Use an option$"):
        list(reader(schema).read(offsets(0, 10), [file]))
    (batch,) = reader(schema, null_timestamps=True).read(offsets(0, 10), [file])
    assert batch.column("timestamp").to_pylist() == [None]


def test_one_file_is_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[IO[bytes]] = []

    def open_one(location: str, catalog: Mapping[str, str]) -> IO[bytes]:
        assert all(each.closed for each in opened), "another file is open"
        opened.append(open_input(location, catalog))
        return opened[-1]

    monkeypatch.setattr(rows, "open_input", open_one)
    files = [written(tmp_path, [number, 100 + number]) for number in range(3)]
    found = values(reader().read(offsets(0, 200), files))
    assert found == [b"0", b"1", b"2", b"100", b"101", b"102"]


def batch(offsets: list[int]) -> pa.RecordBatch:
    columns = [pa.array(offsets, pa.int64()), pa.array([b"%d" % each for each in offsets])]
    return pa.RecordBatch.from_arrays(columns, ["offset", "value"])


def groups(*rows: list[int]) -> list[RowGroup]:
    found = (RowGroup(min(each), [batch(each[:2]), batch(each[2:])]) for each in rows)
    return sorted(found, key=lambda each: each.start)


def offsets_of(found: object) -> list[int]:
    return [each for one in found for each in one.column(0).to_pylist()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("waiting_bytes", [0, 100, 1 << 20])
def test_rows_of_overlapping_groups_are_in_order(waiting_bytes: int) -> None:
    chance = random.Random(7)
    numbers = list(range(400))
    parts: list[list[int]] = [[] for _ in range(5)]
    for number in numbers:
        parts[chance.randrange(5)].append(number)
    row_groups = [part[at : at + 8] for part in parts for at in range(0, len(part), 8)]
    shuffled = [chance.sample(each, len(each)) for each in row_groups if len(each) > 2]
    expected = sorted(number for each in shuffled for number in each)
    found = list(in_order(groups(*shuffled), waiting_bytes))
    assert offsets_of(found) == expected
    assert all(one.num_rows for one in found)
    values = [each for one in found for each in one.column(1).to_pylist()]
    assert values == [b"%d" % number for number in expected]


def test_rows_do_not_wait_for_all_groups_that_overlap_in_a_chain() -> None:
    read: list[int] = []

    def rows(number: int) -> RowGroup:
        def batches() -> object:
            read.append(number)
            yield batch([10 * number, 10 * number + 11])

        return RowGroup(10 * number, batches())  # type: ignore[arg-type]

    first = next(iter(in_order(map(rows, range(1000)), waiting_bytes=100)))
    assert first.column(0)[0].as_py() == 0
    assert len(read) < 20


def test_no_group_has_no_rows() -> None:
    assert list(in_order([])) == []
