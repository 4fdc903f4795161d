"""An archive's table in a SQLite catalog, and batches to commit to it."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from lakelog.tables.archive.commit import Batch
from lakelog.tables.archive.progress import Extent
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.typed.rows import TypedRows

TOPIC_ID = "A" * 22


class _Template(NamedTuple):
    """A new table, to be copied: PyIceberg takes ten times as long to create one.

    folder: the URI of its warehouse. metadata: the path in `folder` of its only metadata file.
    """

    folder: str
    uuid: str
    catalog: bytes
    metadata: str
    text: str


def new_table(folder: Path) -> TableAddress:
    """Create an archive's table in a warehouse in `folder`."""
    address = TableAddress(open_warehouse(str(folder)).catalog, ("lakelog", "orders"))
    catalog = folder / "catalog.db"
    if catalog.exists():
        return replace(address, uuid=str(ensure_table(address).metadata.table_uuid))
    template = _template()
    folder_uri, number = folder.absolute().as_uri(), str(uuid.uuid4())
    metadata = folder / template.metadata
    metadata.parent.mkdir(parents=True)
    text = template.text.replace(template.folder, folder_uri).replace(template.uuid, number)
    metadata.write_text(text)
    location = f"{folder_uri}/{template.metadata}"
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(catalog)) as file:
        copy.deserialize(template.catalog)
        with copy:
            copy.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
        copy.backup(file)
    return replace(address, uuid=number)


@cache
def _template() -> _Template:
    with tempfile.TemporaryDirectory(prefix="lakelog-test-") as name:
        folder = Path(name)
        address = TableAddress(open_warehouse(name).catalog, ("lakelog", "orders"))
        number = str(ensure_table(address).metadata.table_uuid)
        (metadata,) = folder.rglob("*.metadata.json")
        catalog = (folder / "catalog.db").read_bytes()
        path = str(metadata.relative_to(folder))
        return _Template(folder.as_uri(), number, catalog, path, metadata.read_text())


def write_batch(
    address: TableAddress,
    start: int,
    end: int,
    number: int = 0,
    *,
    topic_id: str = TOPIC_ID,
    leader_epoch: int = 0,
    rows: bool = True,
    headers: bool = True,
) -> Batch:
    """A file with the offsets [start, end) of partition 0, and the batch that has it.

    headers: whether the records have any; they are null otherwise.
    """
    extents = {0: Extent(start, end, leader_epoch)}
    if not rows:
        return Batch(topic_id, "query", number, extents, ())
    path = f"{address.load().location()}/data/{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(exist_ok=True)
    written = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(offset, UTC),
            "timestampType": 0,
            "value": b"v",
            "headers": [{"key": "h", "value": b"x"}] if headers else None,
        }
        for offset in range(start, end)
    ]
    pq.write_table(pa.Table.from_pylist(written, ARROW_SCHEMA), local)
    return Batch(topic_id, "query", number, extents, (path,))


def append_json(address: TableAddress, fields: list[pa.Field], offset: int, value: bytes) -> None:
    """Append a file with one row and its typed columns, as the archive writes it."""
    plain = pa.RecordBatch.from_pylist([_row(offset, value)], ARROW_SCHEMA)
    schema = pa.schema([*ARROW_SCHEMA, *fields])
    _append(address, TypedRows(schema).complete(plain))


def append_typed(address: TableAddress, fields: list[pa.Field], offset: int, data: object) -> None:
    """Append a file with one row, with this value in the column `data`."""
    schema = pa.schema([*ARROW_SCHEMA, *fields])
    _append(address, pa.RecordBatch.from_pylist([_row(offset, b"") | {"data": data}], schema))


def _row(offset: int, value: bytes) -> dict[str, object]:
    row = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": offset}
    return row | {"timestampType": 0, "value": value}


def _append(address: TableAddress, rows: pa.RecordBatch) -> None:
    path = folder(address) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_batches([rows]), path)
    address.load().add_files([path.as_uri()])


def offsets(table: Table, snapshot_id: int | None = None) -> list[int]:
    """Of a snapshot, by default the current one."""
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["offset"].to_pylist())


def files(address: TableAddress) -> int:
    """Data files there are, whether the table names them or not."""
    return len(list(folder(address).glob("data/*")))


def folder(address: TableAddress) -> Path:
    return Path(address.load().location().removeprefix("file://"))
