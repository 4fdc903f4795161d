"""Versions of an archive's table, and ranges of its topic."""

from __future__ import annotations

from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.offsets import OffsetRange
from unit.tables.archive_table import TOPIC_ID


def archive_of(address: TableAddress) -> TopicArchive:
    table = address.load()
    return TopicArchive("orders", TOPIC_ID, address, table, agreed_progress(table, TOPIC_ID))


def offsets(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("orders", partition, start, end, TOPIC_ID)
