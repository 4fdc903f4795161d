"""Batches with dead letters, and what their table has."""

from __future__ import annotations

import uuid
from dataclasses import replace

from lakelog.tables.archive.commit import Batch
from lakelog.tables.archive.dead_letters import DeadLetters, dead_letters_of, open_dead_letters
from lakelog.tables.archive.files import DeadLetterFile
from lakelog.tables.archive.progress import ArchiveJob, Extent
from lakelog.tables.archive.refusals import OnBadRecord, RefusedCount, RefusedRecord, Span
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID, write_batch


def job_of(address: TableAddress, errors: OnBadRecord = OnBadRecord.DEAD_LETTER) -> ArchiveJob:
    """A job that archives the topic `orders` into this table."""
    return ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id=TOPIC_ID,
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1,
        tasks=1,
        skip_lost=True,
        raw_timestamp_id=0,
        uuid=address.uuid,
        extents={},
        errors=errors.value,
    )


def with_dead_letters(
    address: TableAddress,
    start: int,
    end: int,
    *bad: tuple[int, int],
    number: int = 0,
    topic_id: str = TOPIC_ID,
    leader_epoch: int = 0,
    reason: str = "bad",
) -> Batch:
    """A batch of partition 0 whose dead letters are ranges (first, last); its rows are the
    others."""
    table = open_dead_letters(address, topic_id)
    path = f"{table.location()}/data/{uuid.uuid4().hex}.parquet"
    file = DeadLetterFile(path, {})
    for first, last in bad:
        file.add(
            RefusedRecord("orders", 0, first, last, reason, b"raw %d" % first, is_damaged=False)
        )
    written = file.close()
    assert written is not None
    gone = {at for first, last in bad for at in range(first, last + 1)}
    paths: list[str] = []
    for at in sorted(set(range(start, end)) - gone):
        paths += write_batch(address, at, at + 1, topic_id=topic_id).paths
    dead_letters = dead_letters_of(address, str(table.metadata.table_uuid))
    return Batch(
        topic_id,
        "query",
        number,
        {0: Extent(start, end, leader_epoch)},
        tuple(paths),
        refused={0: RefusedCount(len(gone), 0)},
        named=tuple(Span(0, first, last + 1) for first, last in bad),
        dead_letters=DeadLetters(dead_letters, (written,)),
    )


def skipping(batch: Batch) -> Batch:
    """The same batch, with its dead letters skipped."""
    counts = {p: RefusedCount(0, each.dead_letters) for p, each in batch.refused.items()}
    return replace(batch, refused=counts, dead_letters=None)


def dead_letters(address: TableAddress) -> list[tuple[int, int, bytes]]:
    """First and last offset and bytes of each dead letter."""
    rows = dead_letters_of(address).load().scan().to_arrow().to_pylist()
    return sorted((row["offset"], row["offsetLast"], row["raw"]) for row in rows)


def dead_letter_files(address: TableAddress) -> int:
    """Data files of dead letters, whether the table names them or not."""
    from pathlib import Path

    location = dead_letters_of(address).load().location().removeprefix("file://")
    return len(list(Path(location).glob("data/*")))
