"""Rows of lost records leave the table, and all other rows stay as they are."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.tables.archive.lost_rows import LostRange, remove_rows
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.typed.columns import widen
from lakelog.tables.typed.shapes import shape_of
from unit.tables.archive_table import files, folder, offsets

HEADERS: tuple[list[dict[str, Any]] | None, ...] = (
    None,
    [],
    [{"key": "h", "value": None}],
    [{"key": "", "value": b"x"}],
)
LISTS: tuple[list[dict[str, Any]] | None, ...] = (None, [], [{"a": 1}], [{"a": None}])


def append(address: TableAddress, partitions: int) -> list[dict[str, Any]]:
    """Append one file with offsets 0 to 7 of each partition, and null and empty lists in turn."""
    fields = widen(address, [shape_of([{"items": [{"a": 1}]}])])
    rows = [
        {
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": offset,
            "timestampType": 0,
            "key": None if offset % 3 else b"",
            "value": None if offset % 2 else b"",
            "headers": HEADERS[offset % 4],
            "data": {"items": LISTS[(offset + 1) % 4]},
        }
        for partition in range(partitions)
        for offset in range(8)
    ]
    table = pa.Table.from_pylist(rows, pa.schema([*ARROW_SCHEMA, *fields]))
    path = folder(address) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=5)
    address.load().add_files([path.as_uri()])
    return list(table.to_pylist())


def stored(address: TableAddress) -> list[dict[str, Any]]:
    """The rows as the files have them; PyIceberg reads null lists of structs as empty ones."""
    paths = [task.file.file_path for task in address.load().scan().plan_files()]
    found = [row for path in paths for row in pq.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_rows_that_stay_keep_their_null_and_empty_lists(address: TableAddress) -> None:
    rows = append(address, 2)
    before = address.load().current_snapshot()
    assert before is not None
    assert stored(address) == rows

    table = load_for_commit(address)
    lost = [LostRange(0, 3, 6)]
    assert remove_rows(address, table, "orders", lost, lambda _: {"done": "yes"}) == 3

    kept = [row for row in rows if row["partition"] or not 3 <= row["offset"] < 6]
    assert stored(address) == kept
    assert address.load().properties["done"] == "yes"
    assert len(offsets(address.load(), before.snapshot_id)) == 16


def test_only_files_with_lost_rows_are_rewritten(address: TableAddress) -> None:
    append(address, 1)
    before = [task.file.file_path for task in address.load().scan().plan_files()]
    table = load_for_commit(address)

    assert remove_rows(address, table, "other", [LostRange(0, 0, 9)], lambda _: {}) == 0
    assert remove_rows(address, table, "orders", [LostRange(1, 0, 9)], lambda _: {}) == 0

    assert [task.file.file_path for task in address.load().scan().plan_files()] == before


def test_a_file_of_lost_rows_only_has_no_successor(address: TableAddress) -> None:
    append(address, 1)
    table = load_for_commit(address)
    ranges = [LostRange(0, 0, 4), LostRange(0, 4, 99)]

    assert remove_rows(address, table, "orders", ranges, lambda _: {}) == 8

    assert stored(address) == []
    assert files(address) == 1, "an older snapshot still has the file"


@pytest.mark.parametrize("fails", [False, True])
def test_a_table_that_changed_stays_as_it_is(address: TableAddress, fails: bool) -> None:
    rows = append(address, 1)

    def entry(_: object) -> dict[str, str] | None:
        if fails:
            raise ZeroDivisionError
        return None

    table = load_for_commit(address)
    if fails:
        with pytest.raises(ZeroDivisionError):
            remove_rows(address, table, "orders", [LostRange(0, 3, 6)], entry)
    else:
        assert remove_rows(address, table, "orders", [LostRange(0, 3, 6)], entry) is None

    assert stored(address) == rows
    assert files(address) == 1
