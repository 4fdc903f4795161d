"""An independent account of archived tables: plain PyArrow, and a consumer of another library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from lakelog.tables.archive.dead_letters import dead_letters_of
from lakelog.tables.archive.lost_records import LOST_TAG
from lakelog.tables.iceberg.address import TableAddress
from spark.kill_jobs import work_until
from spark.kill_table import Ledger, Row

Record = tuple[int, int, bytes]
"""Partition, offset and value."""


def commits(address: TableAddress) -> int:
    """Return how many commits have added a snapshot to the table."""
    return int(address.load().metadata.last_sequence_number)


def await_commits(address: TableAddress, count: int, work: Callable[[], object]) -> None:
    """Do some work until the table has so many commits more."""
    end = commits(address) + count
    work_until(lambda: commits(address) >= end, "commits of a process", work)


def rows_of(address: TableAddress, *columns: str) -> list[tuple[object, ...]]:
    """Read the rows from the files that the snapshot names, which must all exist."""
    found: list[tuple[object, ...]] = []
    for task in address.load().scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        table = pq.ParquetFile(path).read(list(columns))
        found += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return sorted(found)


def has_moved_rows(address: TableAddress) -> bool:
    """Return whether rows of lost records were moved out of the table: a tag keeps them."""
    return any(name.startswith(LOST_TAG) for name in address.load().metadata.refs)


def consumed_rows(bootstrap: str, topic: str) -> list[Record]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "kills", "enable.auto.commit": False}
    consumer = Consumer(settings)
    rows: list[Record] = []
    for partition in sorted(consumer.list_topics(topic, 60).topics[topic].partitions):
        position = TopicPartition(topic, partition, 0)
        first, end = consumer.get_watermark_offsets(position)
        consumer.assign([position])
        next_offset = first
        while next_offset < end:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            next_offset = (message.offset() or 0) + 1
            rows.append((partition, next_offset - 1, message.value() or b""))
    consumer.close()
    return sorted(rows)


class TableAccount:
    """The kills of the jobs of one table, and the records in the table.

    The value of record n is b"v%d" % n. Dead letters count as rows.
    """

    def __init__(self, address: TableAddress, bootstrap: str, topic: str) -> None:
        self.address = address
        self._bootstrap, self._topic = bootstrap, topic
        self._ledger = Ledger()

    def begin(self, phase: str, produced: int) -> None:
        """Note a kill. produced: the number of records so far."""
        self._ledger.begin(phase, produced, commits(self.address))

    def rows(self) -> dict[str, Row]:
        """Return a row for each phase with kills."""
        rows, dead_letters = self._archived()
        counts = Counter([row[:2] for row in rows] + dead_letters)
        consumed = consumed_rows(self._bootstrap, self._topic)
        numbers = [(int(value[1:]), counts[p, offset]) for p, offset, value in consumed]
        produced = max(number for number, _ in numbers) + 1
        return self._ledger.rows(numbers, produced, commits(self.address))

    def is_complete(self) -> bool:
        """Return whether the table has all records of the topic."""
        consumed = consumed_rows(self._bootstrap, self._topic)
        return set(consumed) <= set(rows_of(self.address, "partition", "offset", "value"))

    def check(self) -> None:
        """Assert that each record of the topic is a row or a dead letter, once, in its place."""
        rows, dead_letters = self._archived()
        consumed = consumed_rows(self._bootstrap, self._topic)
        assert sorted([row[:2] for row in rows] + dead_letters) == [row[:2] for row in consumed]
        gone = set(dead_letters)
        assert rows == [row for row in consumed if row[:2] not in gone]

    def _archived(self) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        dead_letters: list[tuple[object, ...]] = []
        if dead_letters_of(self.address).exists():
            dead_letters = rows_of(dead_letters_of(self.address), "partition", "offset")
        return rows_of(self.address, "partition", "offset", "value"), dead_letters


class Source:
    """The records of a topic: `produce` adds the next ones. made: how many there are."""

    def __init__(self, make: Callable[[range], object]) -> None:
        self._make = make
        self.made = 0

    def produce(self, count: int) -> None:
        self._make(range(self.made, self.made + count))
        self.made += count
