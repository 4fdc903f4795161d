from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from lakelog.client.consumer.batches import Batch
from lakelog.records.batch import read_header
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import dead_letters_of
from lakelog.tables.archive.refusals import RefusedCount
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.upkeep import audit as module
from lakelog.tables.upkeep.audit import Audit, audit
from storage_kit import make_batch
from unit.tables.archive_table import write_batch
from unit.tables.dead_letters import skipping, with_dead_letters
from unit.tables.hybrid.kit import archive_of


@dataclass
class Log:
    """A stand-in for a client: the log has these offsets."""

    offsets: list[int]
    start: int = 0
    impossible: tuple[int, ...] = ()

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        for offset in self.offsets:
            if wanted.start <= offset < wanted.end:
                batch = make_batch(1, timestamp=2**62 if offset in self.impossible else 1000)
                batch[:8] = offset.to_bytes(8, "big")
                yield read_header(batch), memoryview(batch)


def audited(address: TableAddress, log: Log) -> Audit:
    return audit(cast("TopicClient", log), archive_of(address))


def test_a_table_with_every_record_once_is_sound(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW", 3)
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 9, 1))
    found = audited(address, Log(list(range(9)), start=2))
    (one,) = found.partitions
    assert found.is_sound
    assert (one.start, one.end, one.rows, one.compared, one.unverified) == (0, 9, 9, 7, 0)


def test_a_gap_that_the_log_explains_is_sound(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 7, 1, rows=False))
    assert audited(address, Log(list(range(5)))).is_sound
    (one,) = audited(address, Log([], start=7)).partitions
    assert (one.is_sound, one.unverified) == (True, 2), "the log no longer has these offsets"


def test_wrong_offsets_are_named(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 8, 1, rows=False))
    foreign = write_batch(address, 3, 5, 2).paths + write_batch(address, 11, 12, 2).paths
    address.load().add_files(list(foreign))
    found = audited(address, Log([0, 1, 2, 3, 6]))
    (one,) = found.partitions
    assert not found.is_sound
    assert (one.duplicates.count, one.duplicates.first) == (2, [3, 4])
    assert one.outside.first == [11]
    assert one.missing.first == [6]
    assert one.extra.first == [4, 4]


def test_dead_letters_and_skipped_records_are_accounted_for(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1)))
    commit_batch(address, skipping(with_dead_letters(address, 5, 9, (7, 7), number=1)))
    found = audited(address, Log(list(range(9)), impossible=(1, 7)))
    (one,) = found.partitions
    assert found.is_sound
    assert (one.refused, one.rows, one.compared, one.unverified) == (RefusedCount(1, 1), 7, 7, 0)
    (one,) = audited(address, Log([], start=9)).partitions
    assert (one.is_sound, one.unverified) == (True, 0), "each gap has its reason"


def test_refused_records_that_no_table_and_no_count_has_are_missing(address: TableAddress) -> None:
    commit_batch(address, skipping(with_dead_letters(address, 0, 5, (1, 1))))
    (one,) = audited(address, Log(list(range(6)), impossible=(1, 2))).partitions
    assert one.is_sound, "the row of 2 has a null timestamp, perhaps"
    commit_batch(address, write_batch(address, 5, 8, 1, rows=False))
    (one,) = audited(address, Log(list(range(8)), impossible=(1, 6, 7))).partitions
    assert (one.missing.count, one.wrong) == (3, 3), "5 has no row, and one of 1, 6, 7 is counted"


def test_lost_dead_letters_and_dead_letters_with_rows_are_wrong(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), (3, 3)))
    address.load().add_files(list(write_batch(address, 3, 4).paths))
    dead_letters_of(address).load().delete("offset = 1")
    (one,) = audited(address, Log(list(range(5)), impossible=(1, 3))).partitions
    assert (one.doubled.first, one.lost_dead_letters) == ([3], 1)
    assert not one.is_sound
