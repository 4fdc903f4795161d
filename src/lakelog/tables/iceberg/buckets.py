"""Tables that are partitioned by `bucket[N]` of the column `key`, and their data files.

Iceberg defines the hash (spec, "Bucket Transform Details"), so other programs find the bucket of a
key, too. Importing this module imports PyIceberg.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType

_KEY_ID = 6
"""The id of the column `key`; see `columns.py`."""
_FIRST_ID = 1000


def bucket_spec(buckets: int) -> PartitionSpec:
    """Return the partition spec of a table with so many buckets."""
    field = PartitionField(_KEY_ID, _FIRST_ID, BucketTransform(buckets), "key_bucket")
    return PartitionSpec(field)


def buckets_of(table: Table) -> int | None:
    """Return the number of buckets; `None` if the table is not partitioned by them alone."""
    fields = table.spec().fields
    if len(fields) != 1 or fields[0].source_id != _KEY_ID:
        return None
    transform = fields[0].transform
    return transform.num_buckets if isinstance(transform, BucketTransform) else None


def bucket_numbers(keys: pa.Array, buckets: int) -> pa.Array:
    """Return the bucket of each key."""
    numbers: pa.Array = BucketTransform(buckets).pyarrow_transform(BinaryType())(keys)
    return numbers


def by_bucket(rows: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket that has some. Keys are not null."""
    keys = rows.column("key").combine_chunks()
    if not len(keys):
        return
    assert keys.null_count == 0, "a null key has no bucket"
    numbers = bucket_numbers(keys, buckets)
    order = pc.sort_indices(numbers)
    ordered = rows.take(order)
    start = 0
    for run in pc.value_counts(numbers.take(order)):
        number, count = run["values"].as_py(), run["counts"].as_py()
        assert 0 <= number < buckets, number
        yield number, ordered.slice(start, count)
        start += count
    assert start == len(rows), "every row is in one bucket"


def bucket_file(table: Table, path: str, bucket: int) -> DataFile:
    """Return a Parquet file with rows of one bucket, with its statistics, for a commit.

    PyIceberg finds no bucket in a file itself. Raises `OSError`.
    """
    assert bucket in range(buckets_of(table) or 0), "the table is partitioned by buckets alone"
    source = table.io.new_input(path)
    with source.open() as stream:
        metadata = pq.read_metadata(stream)
    schema = table.metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata,
        stats_columns=compute_statistics_plan(schema, table.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(bucket),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
