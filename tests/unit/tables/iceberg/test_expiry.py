"""Expiry of snapshots, and the files that remain."""

from __future__ import annotations

import pytest
from pyiceberg.table.maintenance import MaintenanceTable

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg import expiry
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import folder, offsets, write_batch


@pytest.fixture(autouse=True)
def _short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(expiry, "_KEPT", 2)


def commit_each(address: TableAddress, start: int, end: int) -> None:
    """A batch, a snapshot and a file for each offset."""
    for at in range(start, end):
        commit_batch(address, write_batch(address, at, at + 1, at))


def test_history_stays_short(address: TableAddress) -> None:
    commit_each(address, 0, 10)

    table = address.load()
    assert len(table.metadata.snapshots) <= 4
    lists = list((folder(address) / "metadata").glob("snap-*.avro"))
    assert len(lists) == len(table.metadata.snapshots)
    assert offsets(table) == list(range(10))


@pytest.mark.long
def test_tagged_and_branched_snapshots_stay_and_the_rest_expires(address: TableAddress) -> None:
    tagged: list[int] = []
    for at, name in ((0, "tag"), (1, "branch")):
        commit_each(address, at, at + 1)
        table = address.load()
        tagged.append(int(table.metadata.current_snapshot_id or 0))
        manage = table.manage_snapshots()
        create = manage.create_tag if name == "tag" else manage.create_branch
        create(tagged[-1], name).commit()

    commit_each(address, 2, 12)

    table = address.load()
    assert len(table.metadata.snapshots) <= 6
    assert [offsets(table, each) for each in tagged] == [[0], [0, 1]]
    lists = list((folder(address) / "metadata").glob("snap-*.avro"))
    assert len(lists) == len(table.metadata.snapshots)
    assert offsets(table) == list(range(12))


def test_after_an_expiry_of_unknown_outcome_no_file_goes(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 4)
    metadata = folder(address) / "metadata"
    before = set(metadata.glob("*.avro"))

    def unknown(self: MaintenanceTable) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(MaintenanceTable, "expire_snapshots", unknown)
    commit_each(address, 4, 6)

    assert set(metadata.glob("*.avro")) >= before
    assert offsets(address.load()) == list(range(6))


def test_a_kept_snapshot_that_cannot_be_read_stops_the_removal_not_the_batch(
    address: TableAddress,
) -> None:
    commit_each(address, 0, 2)
    table = address.load()
    kept = table.metadata.snapshots[0]
    table.manage_snapshots().create_tag(kept.snapshot_id, "kept").commit()
    table.io.delete(kept.manifest_list)

    commit_each(address, 2, 8)

    assert offsets(address.load()) == list(range(8))
