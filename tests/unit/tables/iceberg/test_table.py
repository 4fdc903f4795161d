"""The table of an archive: created, accepted or rejected, and prepared for commits."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import NestedField, StringType

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, parse_terms, with_null_timestamps
from lakelog.tables.iceberg.table import (
    SCHEMA,
    admit_null_timestamps,
    ensure_table,
    load_for_commit,
    spec_of,
    spec_text,
    terms_of,
)
from lakelog.tables.iceberg.warehouse import open_warehouse
from unit.tables.archive_table import offsets, write_batch


def test_the_table_is_created_once_by_many(tmp_path: Path) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "a.b"))
    found: list[str] = []
    workers = [
        threading.Thread(
            target=lambda: found.append(str(ensure_table(address).metadata.table_uuid))
        )
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(found) == 3
    assert len(set(found)) == 1


def test_the_columns_are_said_twice_alike() -> None:
    assert schema_to_pyarrow(SCHEMA).equals(ARROW_SCHEMA, check_metadata=True)


OTHER_KEY = NestedField(6, "key", StringType(), required=False)


MORE = NestedField(9, "more", StringType(), required=False)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (SCHEMA.fields[:5], "lacks the column 'key'"),
        ((*SCHEMA.fields[:5], OTHER_KEY, *SCHEMA.fields[6:]), "lacks the column 'key'"),
        ((*SCHEMA.fields[:7], MORE, SCHEMA.fields[7]), "lacks the column 'headers'"),
    ],
)
def test_a_table_of_other_columns_is_refused(
    tmp_path: Path, columns: tuple[NestedField, ...], what: str
) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "other"))
    catalog = open_catalog(address.catalog)
    catalog.create_namespace("lakelog")
    catalog.create_table(address.identifier, Schema(*columns))

    with pytest.raises(ValueError, match=what):
        ensure_table(address)


def test_columns_may_be_added_that_are_null_in_an_archive(address: TableAddress) -> None:
    with address.load().update_schema() as update:
        update.add_column("more", StringType())
    ensure_table(address)
    commit_batch(address, write_batch(address, 0, 5))
    assert address.load().scan().to_arrow()["more"].null_count == 5

    with address.load().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("needed", StringType(), required=True)
    with pytest.raises(ValueError, match="has required columns"):
        ensure_table(address)


def test_timestamps_may_be_null_from_a_batch_on(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 2))
    raw = admit_null_timestamps(address)
    assert admit_null_timestamps(address) == raw
    ensure_table(address)
    batch = write_batch(address, 2, 3, 1)
    path = batch.paths[0].removeprefix("file://")
    rows = pq.ParquetFile(path).read().to_pylist()
    written = [{**rows[0], "timestamp": None, "rawTimestamp": 2**62}]
    pq.write_table(pa.Table.from_pylist(written, with_null_timestamps(raw)), path)
    commit_batch(address, batch)
    commit_batch(address, write_batch(address, 3, 4, 2))

    found = {row["offset"]: row for row in address.load().scan().to_arrow().to_pylist()}

    assert [found[at]["rawTimestamp"] for at in range(4)] == [None, None, 2**62, None]
    assert [found[at]["timestamp"] is None for at in range(4)] == [False, False, True, False]


def test_a_column_for_impossible_timestamps_may_be_taken(address: TableAddress) -> None:
    with address.load().update_schema() as update:
        update.add_column("rawTimestamp", StringType())

    with pytest.raises(ValueError, match="of another type"):
        admit_null_timestamps(address)


def test_a_new_table_has_the_partitions_of_its_terms(tmp_path: Path) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "days"))
    terms = parse_terms(["day(timestamp)", "partition"])
    table = ensure_table(address, partition_by=terms)
    assert [field.name for field in table.spec().fields] == ["timestamp_day", "partition"]
    assert terms_of(ensure_table(address)) == terms, "a table keeps its terms"
    with pytest.raises(
        ValueError, match=r"is partitioned by day.*, but table\.partition_by is hour"
    ):
        ensure_table(address, partition_by=parse_terms(["hour(timestamp)"]))


def test_terms_are_for_new_tables_only(address: TableAddress) -> None:
    with pytest.raises(ValueError, match="is partitioned by nothing, but"):
        ensure_table(address, partition_by=parse_terms(["partition"]))


def test_a_table_of_an_unsupported_spec_is_refused(address: TableAddress) -> None:
    with address.load().update_spec() as update:
        update.add_field("offset", BucketTransform(4))
    with pytest.raises(ValueError, match=r"partitioned by bucket\[4\]\(offset\), which an archive"):
        ensure_table(address)


def test_a_new_table_leaves_retries_to_the_archive(address: TableAddress) -> None:
    """A retry by PyIceberg would repeat a failed commit without checking the progress."""
    assert load_for_commit(address).properties["commit.retry.num-retries"] == "0"


def test_a_commit_sets_missing_properties_and_keeps_other_values(address: TableAddress) -> None:
    with address.load().transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries", "commit.manifest-merge.enabled")
        transaction.set_properties({"write.metadata.previous-versions-max": "7"})

    properties = load_for_commit(address).properties

    assert properties["commit.retry.num-retries"] == "0"
    assert properties["commit.manifest-merge.enabled"] == "true"
    assert properties["write.metadata.previous-versions-max"] == "7"
    assert address.load().properties == properties


def test_a_loaded_table_keeps_its_rows(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    assert offsets(ensure_table(address)) == list(range(5))


def test_a_spec_has_a_field_for_each_term() -> None:
    spec = spec_of(parse_terms(["hour(timestamp)", "timestampType"]), SCHEMA)
    assert [(each.source_id, each.name, str(each.transform)) for each in spec.fields] == [
        (4, "timestamp_hour", "hour"),
        (5, "timestampType", "identity"),
    ]
    assert spec_of((), SCHEMA).is_unpartitioned()


def test_the_terms_of_a_table_follow_its_present_spec(address: TableAddress) -> None:
    assert terms_of(address.load()) == ()
    with address.load().update_spec() as update:
        update.add_identity("partition")
    with address.load().update_spec() as update:
        update.add_field("key", VoidTransform(), "nothing")
    assert terms_of(address.load()) == parse_terms(["partition"])
    with address.load().update_spec() as update:
        update.add_field("offset", BucketTransform(4))
    assert spec_text(address.load()) == "partition,bucket[4](offset)"
    with pytest.raises(ValueError, match="does not support"):
        terms_of(address.load())
