from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import Policy
from lakelog.tables.upkeep.cleanup import Cleaned, clean, clean_all
from lakelog.tables.upkeep.compaction import compact
from unit.tables.archive_table import TOPIC_ID, files, folder, offsets, write_batch
from unit.tables.compacted.kit import Put, Tables

DAY_S = 86_400.0
ALL_BUT_ONE = Policy(1)


def commit_each(address: TableAddress, start: int, end: int) -> None:
    for at in range(start, end):
        commit_batch(address, write_batch(address, at, at + 1, at))


def orphan(address: TableAddress, name: str, age_s: float) -> Path:
    path = folder(address) / "data" / name
    path.write_bytes(b"rows of a killed task")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.long
def test_of_newest_records_less_is_kept(address: TableAddress) -> None:
    tables = Tables(address)
    for number in range(6):
        tables.append(Put(b"a", b"%d" % number))
        tables.refresh()
    now = time.time()
    compacted = tables.place.address
    assert clean_all(address, Policy(50), now, compacted=compacted).files == 0, "of the last hour"
    done = clean_all(address, Policy(50), now + 3601, compacted=compacted)
    assert len(compacted.load().metadata.snapshots) == 3
    assert done.files == 3
    assert tables.values() == {b"a": b"5"}
    assert tables.commits == len(address.load().metadata.snapshots)


def test_replaced_files_are_removed_after_the_grace_period(address: TableAddress) -> None:
    commit_each(address, 0, 8)
    compact(address, "orders", TOPIC_ID)
    now = time.time()
    assert clean(address, ALL_BUT_ONE, now).files == 0, "readers may still use them"
    assert files(address) == 9
    done = clean(address, ALL_BUT_ONE, now + 2 * DAY_S)
    assert done.files == 8
    assert files(address) == 1
    assert not list((folder(address) / "metadata").glob("lakelog-replaced-*"))
    assert offsets(address.load()) == list(range(8))


def test_files_of_tagged_and_branched_snapshots_stay(address: TableAddress) -> None:
    commit_each(address, 0, 8)
    snapshot = address.load().current_snapshot()
    assert snapshot is not None
    address.load().manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    compact(address, "orders", TOPIC_ID)
    clean(address, ALL_BUT_ONE, time.time() + 9 * DAY_S)
    assert files(address) == 9
    assert offsets(address.load(), snapshot.snapshot_id) == list(range(8))
    address.load().manage_snapshots().remove_tag("audit").commit()
    clean(address, ALL_BUT_ONE, time.time() + 9 * DAY_S)
    assert files(address) == 1


def test_orphans_are_removed_by_age(address: TableAddress) -> None:
    commit_each(address, 0, 3)
    old, young = orphan(address, "old.parquet", 4 * DAY_S), orphan(address, "young.parquet", 60)
    assert clean(address, Policy(100), time.time()) == Cleaned(0, 1, 21)
    assert not old.exists() and young.exists()
    assert offsets(address.load()) == [0, 1, 2]


def test_the_policy_of_the_table_comes_first(address: TableAddress) -> None:
    commit_each(address, 0, 6)
    with address.load().transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "4"})
    now = time.time()
    assert clean(address, ALL_BUT_ONE, now).snapshots == 2
    with address.load().transaction() as transaction:
        transaction.set_properties(
            {
                "history.expire.min-snapshots-to-keep": "1",
                "history.expire.max-snapshot-age-ms": str(int(DAY_S * 1000)),
            }
        )
    assert clean(address, ALL_BUT_ONE, now).snapshots == 0
    assert clean(address, ALL_BUT_ONE, now + 2 * DAY_S).snapshots == 3
    assert offsets(address.load()) == list(range(6))


def test_a_list_that_a_crash_cut_off_is_removed_after_the_grace_period(
    address: TableAddress,
) -> None:
    commit_each(address, 0, 3)
    torn = folder(address) / "metadata" / "lakelog-replaced-torn.json"
    torn.write_text('{"replaced_ms": 1, "paths": ["')
    assert clean(address, Policy(100), time.time()) == Cleaned(0, 0, 0)
    assert torn.exists()
    clean(address, Policy(100), time.time() + 2 * DAY_S)
    assert not torn.exists()
    assert offsets(address.load()) == [0, 1, 2]


def test_a_file_that_another_program_named_by_another_form_of_its_path_stays(
    address: TableAddress,
) -> None:
    commit_each(address, 0, 1)
    (path,) = write_batch(address, 1, 2).paths
    address.load().add_files([path.removeprefix("file://")])
    assert clean(address, Policy(100), time.time() + 9 * DAY_S).files == 0
    assert offsets(address.load()) == [0, 1]
