"""Counts the records twice, with two readers that share no code.

- lakelog: the archive's files by PyArrow, the rest by lakelog's own client.
- others: the archive's files by DuckDB, the rest by librdkafka.

Each reader also computes a digest of a partition's values in order, which reveals changed, repeated
and swapped records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.spark.archive.sync import SyncResult

_POLL_S = 10.0
_Rows = Iterable[tuple[int, int, bytes | None]]
"""Partition, offset, value; in order of offsets within a partition."""


class ProofError(Exception):
    """A reader found a missing or repeated offset. The text has its place."""


@dataclass(slots=True)
class Tally:
    """The number of a partition's records, and a digest of their values in order."""

    count: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, value: bytes | None) -> None:
        self.count += 1
        self._hash.update(b"-" if value is None else b"%d:" % len(value))
        self._hash.update(value or b"")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one reader for a topic, by partition."""

    archived: Mapping[int, int]
    live: Mapping[int, int]
    digests: Mapping[int, str]


def count_with_lakelog(bootstrap: str, topic: str, archive: SyncResult) -> Found:
    """Return the counts of PyArrow and lakelog's client. Raises `ProofError`."""
    return _counted(_pyarrow_rows(archive), _lakelog_rows(bootstrap, topic, archive.ends))


def count_with_others(bootstrap: str, topic: str, archive: SyncResult) -> Found:
    """Return the counts of DuckDB and librdkafka. Raises `ProofError`."""
    return _counted(_duckdb_rows(archive), _librdkafka_rows(bootstrap, topic, archive.ends))


def _counted(archived: _Rows, live: _Rows) -> Found:
    tallies: dict[int, Tally] = {}
    counts: list[dict[int, int]] = []
    for rows in (archived, live):
        counts.append({})
        for partition, offset, value in rows:
            tally = tallies.setdefault(partition, Tally())
            if offset != tally.count:
                raise ProofError(f"partition {partition}: offset {offset} instead of {tally.count}")
            tally.add(value)
            counts[-1][partition] = counts[-1].get(partition, 0) + 1
    digests = {partition: tally.digest for partition, tally in tallies.items()}
    return Found(counts[0], counts[1], digests)


def _data_files(archive: SyncResult) -> list[str]:
    """Return the local paths of the files in the archive's last snapshot."""
    from pyiceberg.table import StaticTable

    tasks = StaticTable.from_metadata(archive.metadata_path).scan().plan_files()
    return sorted(task.file.file_path.removeprefix("file://") for task in tasks)


def _pyarrow_rows(archive: SyncResult) -> Iterator[tuple[int, int, bytes | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["partition", "offset", "value"]
    tables = [pq.read_table(path, columns=columns) for path in _data_files(archive)]
    if tables:
        ordered = pa.concat_tables(tables).sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )
        for batch in ordered.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _duckdb_rows(archive: SyncResult) -> Iterator[tuple[int, int, bytes | None]]:
    import duckdb

    files = _data_files(archive)
    if files:
        with duckdb.connect() as connection:
            rows = connection.execute(
                'SELECT partition, "offset", value FROM read_parquet(?) ORDER BY ALL', [files]
            )
            while some := rows.fetchmany(10_000):
                yield from some


def _lakelog_rows(
    bootstrap: str, topic: str, ends: Mapping[int, int]
) -> Iterator[tuple[int, int, bytes | None]]:
    from lakelog.columns.decoding.decode import decode_columns
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.topic.offsets import OffsetRange

    with TopicClient(bootstrap, client_id="lakelog-demo") as client:
        partitions = [(topic, p) for p in client.describe([topic])[topic].partitions]
        for (_, partition), end in client.latest(partitions).items():
            offset_range = OffsetRange(topic, partition, ends.get(partition, 0), end)
            batches = client.batches(offset_range)
            for rows in decode_columns(
                batches, ["offset", "value"], start=offset_range.start, end=end
            ):
                for offset, value in zip(
                    *(rows.column(i).to_pylist() for i in (0, 1)), strict=True
                ):
                    yield partition, offset, value


def _librdkafka_rows(
    bootstrap: str, topic: str, ends: Mapping[int, int]
) -> Iterator[tuple[int, int, bytes | None]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    )
    try:
        for partition in consumer.list_topics(topic).topics[topic].partitions:
            position = TopicPartition(topic, partition, ends.get(partition, 0))
            _, end = consumer.get_watermark_offsets(position)
            consumer.assign([position])
            for offset in range(position.offset, end):
                message = consumer.poll(_POLL_S)
                if message is None or message.error():
                    raise ProofError(f"no record of {topic}-{partition} at offset {offset}")
                yield partition, message.offset() or 0, message.value()
    finally:
        consumer.close()
