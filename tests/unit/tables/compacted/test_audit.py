from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.tables.compacted import audit as audits
from lakelog.tables.compacted.audit import CompactedAudit, audit_compacted, compacted_overview
from lakelog.tables.compacted.table import CompactedTableError
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import ensure_table
from unit.tables.compacted.kit import BUCKETS, Put, Tables


@pytest.fixture
def tables(address: TableAddress) -> Tables:
    """Twenty keys, one of them deleted, and records that no refresh has read."""
    made = Tables(address)
    made.append(*(Put(b"k%d" % (n % 20), b"v%d" % n) for n in range(60)), Put(None, b"x"))
    made.append(Put(b"k3", None))
    made.refresh()
    made.append(Put(b"k4", b"newer"))
    return made


def audited(tables: Tables) -> CompactedAudit:
    return audit_compacted(tables.version(), tables.place.address.load())


def test_a_right_table_is_sound(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audited(tables)
    assert found.is_sound, found.first
    assert (found.rows, found.keys, found.shared_keys, found.null_keys) == (19, 20, 0, 1)
    monkeypatch.setattr(audits, "_PART_BYTES", 100)
    assert audited(tables) == found, "in more parts"


def test_an_archive_that_was_opened_before_a_refresh_is_loaded_again(tables: Tables) -> None:
    opened = tables.version()
    tables.append(Put(b"k5", b"newest"), Put(b"k6", None))
    tables.refresh()
    found = audit_compacted(opened, tables.place.address.load())
    assert found.is_sound, found.first


def test_keys_in_several_partitions_have_a_row_of_one_of_them(tables: Tables) -> None:
    tables.append(Put(b"k5", b"in 1", 1, at=-1), Put(b"k3", b"in 1", 1, at=-1))
    tables.refresh()
    tables.append(Put(b"k6", None, 1, at=9))
    tables.refresh()
    found = audited(tables)
    assert found.is_sound, found.first
    assert found.shared_keys == 3


def rewritten(tables: Tables, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the content of one file, behind the table's back."""
    path = Path(tables.files()[2].removeprefix("file://"))
    rows = change(pq.read_table(path))
    pq.write_table(rows, path)


def with_first(name: str, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        records = rows.to_pylist()
        records[0][name] = value
        return pa.Table.from_pylist(records, rows.schema)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (with_first("value", b"other"), "is not the newest"),
        (with_first("offset", 1), "is not the newest"),
        (with_first("key", b"k3"), "is not the newest"),
        (lambda rows: rows.slice(1), "is missing"),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "more than once"),
        (with_first("key", b"k2"), "another bucket"),
    ],
)
def test_each_wrong_row_is_found(
    tables: Tables, change: Callable[[pa.Table], pa.Table], expected: str
) -> None:
    rewritten(tables, change)
    found = audited(tables)
    assert not found.is_sound
    assert expected in "; ".join(found.first)


def test_the_counts_are_compared(tables: Tables) -> None:
    rewritten(tables, lambda rows: rows.slice(1))
    assert any("of the snapshot's summary" in text for text in audited(tables).first)


def test_a_table_of_an_earlier_archive_is_no_candidate(tables: Tables) -> None:
    compacted = tables.place.address.load()
    open_catalog(tables.archive.catalog).drop_table(tables.archive.identifier)
    uuid = str(ensure_table(replace(tables.archive, uuid="")).metadata.table_uuid)
    tables.archive, tables.puts = replace(tables.archive, uuid=uuid), {}
    tables.append(Put(b"k1", b"v"))
    with pytest.raises(CompactedTableError, match="--rebuild"):
        audit_compacted(tables.version(), compacted)


def test_the_lag_is_in_archived_offsets(address: TableAddress) -> None:
    tables = Tables(address)
    tables.append(Put(b"a", b"1"), Put(b"b", b"2"), Put(None, b"x"))
    tables.refresh()
    tables.append(Put(b"a", b"3"), Put(b"a", b"4", 1))
    found = compacted_overview(tables.version(), tables.place.address.load())
    assert (found.rows, found.lag, found.null_keys, found.buckets) == (2, 2, 1, BUCKETS)
    assert found.files == len(tables.files())
    assert found.size > 1000
