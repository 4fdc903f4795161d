from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import DataScan, FileScanTask, Transaction
from pyiceberg.types import StringType

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.hybrid import rows as row_module
from lakelog.tables.iceberg import commits as commit_module
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import UnknownOutcomeError, note_replaced
from lakelog.tables.registry.avro import AvroSchema
from lakelog.tables.typed.columns import widen
from lakelog.tables.typed.shapes import shape_of
from lakelog.tables.upkeep import compaction
from lakelog.tables.upkeep.compaction import Compacted, CompactionError, compact
from unit.tables.archive_table import (
    TOPIC_ID,
    append_json,
    append_typed,
    files,
    folder,
    offsets,
    write_batch,
)
from unit.tables.registry.avro_values import encoded, record


def commit_each(address: TableAddress, start: int, end: int) -> None:
    for at in range(start, end):
        commit_batch(address, write_batch(address, at * 10, at * 10 + 10, at))


def compacted(address: TableAddress, **options: int) -> Compacted:
    return compact(address, "orders", TOPIC_ID, **options)


def live(address: TableAddress) -> list[str]:
    return [task.file.file_path for task in address.load().scan().plan_files()]


def test_small_files_become_one_in_the_order_of_offsets(address: TableAddress) -> None:
    commit_each(address, 0, 10)
    before = agreed_progress(address.load(), TOPIC_ID)
    done = compacted(address)
    assert (done.files_before, done.files_after, done.rows) == (10, 1, 100)
    (path,) = live(address)
    found = pq.read_table(path.removeprefix("file://"))["offset"].to_pylist()
    assert found == list(range(100))
    table = address.load()
    assert agreed_progress(table, TOPIC_ID) == before
    assert int(table.current_snapshot().summary["total-records"]) == 100
    # The archive continues, and one large file is left alone.
    commit_each(address, 10, 11)
    assert offsets(address.load()) == list(range(110))
    assert compacted(address) == Compacted()


def test_files_have_the_target_size(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_ROW_GROUP_BYTES", 1)
    commit_each(address, 0, 8)
    compacted(address, target_bytes=5000, files_min=8)
    assert 1 < len(live(address)) < 8
    assert offsets(address.load()) == list(range(80))


def test_a_replaced_file_stays_for_older_snapshots(address: TableAddress) -> None:
    commit_each(address, 0, 8)
    old = live(address)
    snapshot = address.load().current_snapshot()
    assert snapshot is not None
    compacted(address)
    assert files(address) == 9
    assert offsets(address.load(), snapshot.snapshot_id) == list(range(80))
    (listed,) = (folder(address) / "metadata").glob("lakelog-replaced-*.json")
    assert sorted(json.loads(listed.read_bytes())["paths"]) == sorted(old)


@pytest.mark.usefixtures("on_two_hosts")
def test_another_commit_in_between_is_kept(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 8)
    real, commits = Transaction.commit_transaction, list[int]()

    def late(self: Transaction) -> Any:
        if not commits:
            commits.append(1)
            commit_each(address, 8, 9)
        return real(self)

    monkeypatch.setattr(Transaction, "commit_transaction", late)
    assert compacted(address).files_before == 8
    assert offsets(address.load()) == list(range(90))
    assert len(live(address)) == 2


def test_files_that_arrive_meanwhile_are_left_for_the_next_call(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside an archive that commits two files in each round, no call would end otherwise."""
    commit_each(address, 0, 2)
    real, arrived = note_replaced, list[int]()

    def note(*arguments: Any) -> None:
        real(*arguments)
        assert len(arrived) < 5, "the call does not end"
        arrived.append(2 + 2 * len(arrived))
        commit_each(address, arrived[-1], arrived[-1] + 2)

    monkeypatch.setattr(compaction, "note_replaced", note)
    assert compacted(address, files_min=2).files_before == 2
    assert compacted(address, files_min=2).files_before == 3
    assert offsets(address.load()) == list(range(60))


def test_after_failed_commits_no_new_file_remains(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 8)

    def fail(self: Transaction) -> None:
        raise CommitFailedException("another commit came first")

    monkeypatch.setattr(commit_module, "_ATTEMPTS_MAX", 2)
    monkeypatch.setattr(Transaction, "commit_transaction", fail)
    with pytest.raises(CommitFailedException):
        compacted(address)
    assert files(address) == 8


def test_after_a_commit_of_unknown_outcome_the_new_files_stay(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 8)
    real = Transaction.commit_transaction

    def unknown(self: Transaction) -> None:
        real(self)
        raise ConnectionError("no answer")

    monkeypatch.setattr(Transaction, "commit_transaction", unknown)
    assert compacted(address).files_after == 1, "the next attempt finds the commit"
    assert offsets(address.load()) == list(range(80))


def test_a_catalog_that_never_answers_leaves_the_outcome_open(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 8)

    def silent(self: Transaction) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(commit_module, "_ATTEMPTS_MAX", 2)
    monkeypatch.setattr(Transaction, "commit_transaction", silent)
    with pytest.raises(UnknownOutcomeError, match=r"unknown \(ConnectionError: no answer"):
        compacted(address)
    assert files(address) == 9, "the new file stays, because the commit may still succeed"


def test_columns_of_other_programs_are_not_dropped(address: TableAddress) -> None:
    commit_each(address, 0, 8)
    with address.load().update_schema() as update:
        update.add_column("region", StringType())
    with pytest.raises(CompactionError, match="'region' of another program"):
        compacted(address)


def test_typed_columns_of_all_files_are_kept(address: TableAddress) -> None:
    values = [b'{"a": 1}', b'{"a": "x", "l": [{"b": 2}]}', b"[1]", b'{"l": [{"c": true}]}']
    for offset, value in enumerate(values):
        fields = widen(address, [shape_of([json.loads(value)])])
        append_json(address, fields, offset, value)
    before = address.load().scan().to_arrow().sort_by("offset")
    assert before["rescued"].to_pylist() == [None, '{"$.a":"x"}', '{"$":[1]}', None]
    assert before["data"].to_pylist()[3] == {"a": None, "l": [{"b": None, "c": True}]}

    assert compacted(address, files_min=2).files_after == 1
    # By PyArrow: PyIceberg reads a list that is null as an empty one.
    after = pq.read_table(live(address)[0].removeprefix("file://"), schema=before.schema)
    assert after["data"].to_pylist() == before["data"].to_pylist()
    assert after["rescued"].to_pylist() == before["rescued"].to_pylist()

    append_json(address, fields, 4, b"{}")
    with address.load().update_schema() as update:
        update.rename_column("data.a", "renamed")
    with pytest.raises(ValueError, match="renamed the field 'a' of the column 'data'"):
        compacted(address, files_min=2)


def test_typed_columns_of_avro_values_are_kept_as_they_widen(address: TableAddress) -> None:
    def decimal(precision: int) -> dict[str, Any]:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}

    def towns(*more: str) -> dict[str, Any]:
        return {"type": "map", "values": record("int", *more, name="Town")}

    others = [
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
    ]
    same = (b"ab", date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), 7)
    versions = [
        (record("int", "float", decimal(4), towns(), *others, name="Top"),
         (1, 1.5, Decimal("1.25"), {"a": {"f0": 1}}, *same)),
        (record("long", "double", decimal(9), towns("string"), *others, "boolean", name="Top"),
         (2**40, 1e300, Decimal("1000000.25"), {"b": {"f0": 2, "f1": "x"}}, *same, True)),
    ]  # fmt: skip
    for offset, (schema, values) in enumerate(versions):
        known = AvroSchema(json.dumps(schema))
        fields = widen(address, [known.shape])
        types = [each["type"] for each in schema["fields"]]
        row = {f"f{number}": each for number, each in enumerate(values)}
        data = encoded(record(*types[:7], "long", *types[8:], name="Top"), row)
        append_typed(address, fields, offset, known.reader(fields[0].type)(data)[0])

    before = address.load().scan().to_arrow().sort_by("offset")["data"].to_pylist()
    assert before[0] | {"f8": None} == before[0], "an earlier file has no such column"
    assert (before[1]["f0"], before[1]["f1"], before[1]["f8"]) == (2**40, 1e300, True)
    assert [row["f2"] for row in before] == [Decimal("1.25"), Decimal("1000000.25")]
    assert [row["f3"] for row in before] == [
        [("a", {"f0": 1, "f1": None})],
        [("b", {"f0": 2, "f1": "x"})],
    ]
    assert before[0]["f6"] == datetime(2026, 1, 2, tzinfo=UTC)

    assert compacted(address, files_min=2).files_after == 1
    assert address.load().scan().to_arrow().sort_by("offset")["data"].to_pylist() == before


class Deleted:
    """Delete files of another program, which `plan_files` reports for data files."""

    def __init__(self, patch: pytest.MonkeyPatch, positions: list[int]) -> None:
        self.is_added = False
        self.file = Mock(file_path="deletes.parquet")
        real = DataScan.plan_files

        def planned(scan: DataScan) -> list[FileScanTask]:
            deletes = {self.file} if self.is_added else set()
            return [FileScanTask(each.file, deletes) for each in real(scan)]

        patch.setattr(DataScan, "plan_files", planned)
        kept = pa.array(positions, pa.int64())
        patch.setattr(row_module, "deleted_rows", lambda _, deletes, __: kept if deletes else None)


def test_files_without_rows_are_removed(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = Deleted(monkeypatch, list(range(10)))
    commit_each(address, 0, 8)
    deleted.is_added = True
    done = compacted(address)
    assert (done.files_before, done.files_after, done.rows) == (8, 0, 0)
    assert live(address) == []


def test_rows_that_are_deleted_meanwhile_do_not_return(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = Deleted(monkeypatch, [0])
    commit_each(address, 0, 8)
    before, real = live(address), note_replaced

    def delete(*arguments: Any) -> None:
        real(*arguments)
        deleted.is_added = True

    monkeypatch.setattr(compaction, "note_replaced", delete)
    assert compacted(address) == Compacted()
    assert sorted(live(address)) == sorted(before)
