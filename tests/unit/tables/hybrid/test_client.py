from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.hybrid import client as joined
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.hybrid.client import HybridClient, first_at
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.topic.offsets import TopicPartition
from unit.tables.archive_table import write_batch
from unit.tables.hybrid.kit import archive_of, offsets

KEY = ("orders", 0)


@dataclass
class Log:
    """The broker's answers: the log of `orders` is [start, 20), record n is of second n."""

    start: int

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        def place(time: int) -> OffsetAt:
            if time == LATEST:
                return OffsetAt(20, -1, 4)
            first = self.start if time == EARLIEST else max(self.start, -(-time // 1000))
            return OffsetAt(first, -1, 4)

        return {key: place(time) for key, time in wanted.items()}


@pytest.fixture
def log(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The table of `orders` has [2, 12)."""
    commit_batch(address, write_batch(address, 2, 12))
    log = Log(10)

    def opened(_: TopicClient, topics: Iterable[str]) -> dict[str, TopicArchive]:
        return {"orders": archive_of(address)} if "orders" in set(topics) else {}

    monkeypatch.setattr(joined, "open_archives", opened)
    monkeypatch.setattr(TopicClient, "places", lambda _, wanted: log.places(wanted))
    return log


def client(*, read_committed: bool = True) -> HybridClient:
    return HybridClient("h:1", client_id="test", read_committed=read_committed)


@pytest.mark.parametrize(
    ("time", "offset"),
    [(EARLIEST, 2), (LATEST, 20), (0, 2), (5_500, 6), (10_000, 10), (15_000, 15)],
)
def test_a_topic_begins_where_its_table_begins(log: Log, time: int, offset: int) -> None:
    with client() as asked:
        assert asked.places({KEY: time})[KEY].offset == offset


def test_a_log_with_all_archived_records_answers_itself(log: Log) -> None:
    log.start = 0
    with client() as asked:
        assert asked.places({KEY: EARLIEST})[KEY] == OffsetAt(0, -1, 4)


def test_another_topic_has_no_table(log: Log) -> None:
    with client() as asked:
        assert asked.places({("other", 0): EARLIEST})[("other", 0)].offset == 10
        assert asked.archives([offsets(2, 20)]).keys() == {"orders"}


def test_uncommitted_records_come_from_the_log_or_not_at_all(log: Log) -> None:
    with client(read_committed=False) as asked:
        assert asked.archives([offsets(10, 20)]) == {}
        with pytest.raises(OptionError, match=r"\[9, 20\): the log begins at offset 10"):
            asked.archives([offsets(9, 20)])


def test_the_first_archived_record_at_or_after_a_time(address: TableAddress) -> None:
    for number in range(2):
        commit_batch(address, write_batch(address, number * 10, number * 10 + 10, number))
    archive = archive_of(address)  # record n is of second n
    assert first_at(archive, offsets(0, 20), 0) == 0
    assert first_at(archive, offsets(0, 20), 12_001) == 13
    assert first_at(archive, offsets(0, 20), 19_001) is None
    assert first_at(archive, offsets(0, 13), 13_000) is None
