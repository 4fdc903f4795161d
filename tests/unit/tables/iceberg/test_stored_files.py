"""Files that a batch wrote are removed only when nothing can name them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakelog.tables.archive import commit
from lakelog.tables.archive.commit import Batch, CommitOutcome, abandon_batch, commit_batch
from lakelog.tables.archive.progress import Progress, ProgressConflictError
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.stored_files import place_of, stored_files
from unit.tables.archive_table import files, offsets, write_batch


def test_files_have_the_paths_of_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "data" / "day=1" / "a.parquet").write_bytes(b"123")
    (found,) = stored_files(cast("FileIO", None), f"{tmp_path.as_uri()}/data")
    assert (found.path, found.size) == (f"{tmp_path.as_uri()}/data/day=1/a.parquet", 3)
    assert list(stored_files(cast("FileIO", None), f"{tmp_path.as_uri()}/none")) == []


def test_a_store_without_a_list_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be listed"):
        list(stored_files(cast("FileIO", None), "s3://bucket/table"))


def rewrite(address: TableAddress) -> None:
    """Rewrite the files as a compaction by another program does."""
    table = address.load()
    table.overwrite(table.scan().to_arrow())


def test_a_second_look_leaves_the_files_of_older_snapshots(address: TableAddress) -> None:
    batch = write_batch(address, 0, 5)
    commit_batch(address, batch)
    old = address.load().metadata.current_snapshot_id
    rewrite(address)

    assert commit_batch(address, batch) is CommitOutcome.ALREADY_THERE

    assert offsets(address.load(), old) == list(range(5))
    assert offsets(address.load()) == list(range(5))


@pytest.mark.parametrize("kind", ["create_tag", "create_branch"])
def test_files_of_snapshots_that_only_a_name_keeps_stay(address: TableAddress, kind: str) -> None:
    batch = write_batch(address, 0, 5)
    commit_batch(address, batch)
    table = address.load()
    old = table.metadata.current_snapshot_id
    getattr(table.manage_snapshots(), kind)(old, "old").commit()
    rewrite(address)
    table = address.load()
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    rest = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in named]
    table.maintenance.expire_snapshots().by_ids(rest).commit()

    abandon_batch(address, batch.paths)

    assert offsets(address.load(), old) == list(range(5))


def test_files_that_no_snapshot_names_are_removed(address: TableAddress) -> None:
    committed, lost = write_batch(address, 0, 5), write_batch(address, 5, 9)
    commit_batch(address, committed)

    abandon_batch(address, [*committed.paths, *lost.paths])

    assert files(address) == 1
    assert offsets(address.load()) == list(range(5))


def test_a_conflict_that_is_certain_leaves_no_files(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))

    with pytest.raises(ProgressConflictError):
        commit_batch(address, write_batch(address, 3, 8))

    assert files(address) == 1


@pytest.mark.usefixtures("on_two_hosts")
@pytest.mark.parametrize(
    ("error", "left"), [(ConnectionError("no answer"), 2), (CommitFailedException("lost"), 1)]
)
def test_after_an_unknown_commit_files_stay(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, error: Exception, left: int
) -> None:
    """It may land after the second look, which sees the offsets of another job's batch."""
    ours, theirs = write_batch(address, 0, 5), write_batch(address, 0, 5)
    real = commit.append

    def fail(table: Table, batch: Batch, before: Progress) -> None:
        monkeypatch.setattr(commit, "append", real)
        commit_batch(address, theirs)
        raise error

    monkeypatch.setattr(commit, "append", fail)

    assert commit_batch(address, ours) is CommitOutcome.ALREADY_THERE
    assert files(address) == left


def test_a_snapshot_that_cannot_be_read_keeps_all_files(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 9, 1))
    table = address.load()
    table.io.delete(table.metadata.snapshots[0].manifest_list)

    with pytest.raises(FileNotFoundError):
        abandon_batch(address, write_batch(address, 9, 10).paths)

    assert files(address) == 3


def test_all_forms_of_a_path_are_one_place() -> None:
    local = ("/w/sp ace/a.parquet", "file:/w/sp ace/a.parquet", "file:///w/sp%20ace/a.parquet")
    assert {place_of(path) for path in local} == {"/w/sp ace/a.parquet"}
    assert place_of("s3a://bucket/a") == place_of("s3://bucket/a") != place_of("s3://other/a")
