"""Records in an archive's table, and the table of newest records beside it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.tables.archive.commit import Batch, commit_batch
from lakelog.tables.archive.progress import Extent
from lakelog.tables.compacted.refresh import Refresh, Refreshed
from lakelog.tables.compacted.table import CompactedTableLocation
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.typed.rows import TypedRows
from unit.tables.archive_table import TOPIC_ID
from unit.tables.hybrid.kit import archive_of

BUCKETS = 4


class Put(NamedTuple):
    """A record. `value` is `None` for a tombstone, `at` its timestamp in seconds."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    at: int = 0


@dataclass
class Tables:
    """An archive and its newest records. puts: the records by partition, at their offsets."""

    archive: TableAddress
    place: CompactedTableLocation = field(init=False)
    puts: dict[int, list[Put]] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    commits: int = 0

    def __post_init__(self) -> None:
        self.place = CompactedTableLocation(
            TableAddress(self.archive.catalog, ("lakelog", "orders_latest")), BUCKETS, 0.0
        )

    def append(self, *puts: Put, typed: Sequence[pa.Field] = ()) -> None:
        """Archive records in one commit. typed: the columns of JSON values."""
        starts = {put.partition: len(self.puts.get(put.partition, [])) for put in puts}
        rows = []
        for put in sorted(puts, key=lambda each: each.partition):
            of_partition = self.puts.setdefault(put.partition, [])
            rows.append(row(put, len(of_partition)))
            of_partition.append(put)
        extents = {p: Extent(start, len(self.puts[p]), 0) for p, start in starts.items()}
        path = write(self.archive, rows, typed)
        batch = Batch(TOPIC_ID, "query", self.commits, extents, (path,))
        commit_batch(self.archive, batch)
        self.commits += 1

    def version(self) -> TopicArchive:
        return archive_of(self.archive)

    def refresh(self, *, rebuild: bool = False, bucket_bytes: int = 1 << 20) -> Refreshed:
        run = Refresh(self.place, self.notices.append, bucket_bytes=bucket_bytes)
        return run.run(self.version(), rebuild=rebuild)

    def rows(self, *columns: str) -> list[dict[str, object]]:
        """Read the table with PyIceberg, in the order of the keys."""
        scan = self.place.address.load().scan(selected_fields=("key", *columns))
        found: list[dict[str, object]] = scan.to_arrow().to_pylist()
        return sorted(found, key=lambda each: bytes(str(each["key"]), "utf-8"))

    def values(self) -> dict[object, object]:
        rows = self.rows("value")
        found = {each["key"]: each["value"] for each in rows}
        assert len(found) == len(rows), "each key has one row"
        return found

    def expected(self) -> dict[object, object]:
        """The values of keys that occur in one partition each."""
        found: dict[object, object] = {}
        for puts in self.puts.values():
            for put in puts:
                if put.key is not None:
                    found[put.key] = put.value
        return {key: value for key, value in found.items() if value is not None}

    def files(self) -> dict[int, str]:
        """The file of each bucket."""
        tasks = self.place.address.load().scan().plan_files()
        return {task.file.partition[0]: task.file.file_path for task in tasks}


def row(put: Put, offset: int) -> dict[str, object]:
    return {
        "topic": "orders",
        "partition": put.partition,
        "offset": offset,
        "timestamp": datetime.fromtimestamp(put.at, UTC),
        "timestampType": 0,
        "key": put.key,
        "value": put.value,
        "headers": [{"key": "h", "value": b"%d" % offset}],
    }


def write(
    address: TableAddress, rows: Sequence[dict[str, object]], typed: Sequence[pa.Field] = ()
) -> str:
    path = f"{address.load().location()}/data/{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(exist_ok=True)
    made = pa.RecordBatch.from_pylist(list(rows), ARROW_SCHEMA)
    if typed:
        made = TypedRows(pa.schema([*ARROW_SCHEMA, *typed])).complete(made)
    pq.write_table(pa.Table.from_batches([made]), local)
    return path
