from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import NoReturn

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.spark.archive import upkeep as module
from lakelog.spark.archive.upkeep import Refreshes, Upkeep
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.compacted.table import CompactedTableError
from lakelog.tables.hybrid.archives import TopicArchive
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import UnknownOutcomeError
from lakelog.tables.topic.errors import ArchiveUnreadableError
from unit.tables.archive_table import offsets, write_batch
from unit.tables.compacted.kit import Put, Tables
from unit.tables.hybrid.kit import archive_of


class NoClient:
    """A stand-in for the client, which only `open_archives` would use."""

    def __init__(self, *_: object, **__: object) -> None:
        """Connects nowhere."""

    def __enter__(self) -> NoClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def upkeep(address: TableAddress, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    def opened(_: object, topics: Iterable[str]) -> dict[str, TopicArchive]:
        return {topic: archive_of(address) for topic in topics}

    monkeypatch.setattr(module, "TopicClient", NoClient)
    monkeypatch.setattr(module, "open_archives", opened)
    monkeypatch.setattr(module, "own_compacted", lambda *_: None)
    return Upkeep("b:1", notes.append, every_s=0.0)


def test_small_files_of_an_archive_are_compacted(
    address: TableAddress, upkeep: Upkeep, notes: list[str]
) -> None:
    for at in range(8):
        commit_batch(address, write_batch(address, at, at + 1, at))
    upkeep.run(["orders"])
    assert notes == ["orders: compacted 8 files of its table into 1"]
    assert offsets(address.load()) == list(range(8))


def test_a_table_is_kept_up_after_its_interval(upkeep: Upkeep, notes: list[str]) -> None:
    upkeep.every_s = 3600.0
    for _ in range(3):
        upkeep.run(["orders"])
    assert upkeep._next.keys() == {"orders"}
    assert notes == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ArchiveUnreadableError("the table was dropped"), "the table was dropped"),
        (UnknownOutcomeError("the outcome is unknown"), "the outcome is unknown"),
        (RuntimeError("new in this version"), "RuntimeError: new in this version"),
    ],
)
def test_a_failure_is_reported_once_and_ends_nothing(
    upkeep: Upkeep,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    text: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "open_archives", fail)
    for _ in range(2):
        upkeep.run(["orders"])
    assert notes == [f"orders: its table is not compacted or cleaned up: {text}"]


@pytest.fixture
def tables(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """The tables of the topic `orders`; the topic `plain` has an archive only."""
    made = Tables(address)

    def found_places(_: object, topics: Iterable[str], **__: object) -> dict[str, None]:
        return dict.fromkeys(topics)

    def opened(_: object, topics: Iterable[str]) -> dict[str, TopicArchive]:
        return {topic: made.version() for topic in topics if topic != "unknown"}

    monkeypatch.setattr(module, "TopicClient", NoClient)
    monkeypatch.setattr(module, "find_locations", found_places)
    monkeypatch.setattr(module, "open_locations", opened)
    found = {"orders": made.place}
    monkeypatch.setattr(module, "find_compacted", lambda _, topic, __: found.get(topic))
    return made


@pytest.fixture
def refreshes(tables: Tables) -> Refreshes:
    return Refreshes("b:1", tables.notices.append)


def test_a_table_that_is_due_is_refreshed(tables: Tables, refreshes: Refreshes) -> None:
    tables.append(Put(b"a", b"1"))
    refreshes.run(["orders", "plain", "unknown"])
    assert tables.values() == {b"a": b"1"}
    assert tables.notices == ["orders: refreshed lakelog.orders_latest with 1 records"]
    tables.append(Put(b"a", b"2"))
    refreshes.run(["orders"])
    assert tables.values() == {b"a": b"2"}


def test_refreshes_have_an_interval(
    tables: Tables, refreshes: Refreshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    object.__setattr__(tables.place, "interval_s", 60.0)
    for number, at in enumerate((0.0, 59.0, 61.0)):
        now[0] = 100.0 + at
        tables.append(Put(b"a", b"%d" % number))
        refreshes.run(["orders"])
    assert [each["value"] for each in tables.rows("value")] == [b"2"]
    assert len(tables.notices) == 2


def test_each_failure_is_noticed_once(
    tables: Tables, refreshes: Refreshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([CompactedTableError("x"), CompactedTableError("x"), KeyError("y")])

    def fail(_: str) -> None:
        raise next(errors)

    monkeypatch.setattr(module, "_UNKNOWN_S", 0.0)
    monkeypatch.setattr(Refreshes, "refresh", lambda _, topic: fail(topic))
    for _ in range(3):
        refreshes.run(["orders"])
    assert tables.notices == [
        "orders: its newest records are not refreshed: x",
        "orders: its newest records are not refreshed: KeyError: 'y'",
    ]


def test_refreshes_run_beside_a_job_and_end_with_it(tables: Tables, refreshes: Refreshes) -> None:
    tables.append(Put(b"a", b"1"))
    asked = threading.Event()

    def topics() -> list[str]:
        asked.set()
        return ["orders"]

    with refreshes.beside(topics):
        assert asked.wait(60)
    assert not [each for each in threading.enumerate() if each.name == "refreshes"]


def test_an_unreachable_broker_is_noticed_for_topics_with_such_a_table_only(
    tables: Tables, refreshes: Refreshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNKNOWN_S", 0.0)
    object.__setattr__(tables.place, "interval_s", 0.0)
    topics = ["orders", "plain", "unknown"]
    refreshes.run(topics)
    tables.notices.clear()

    def unreachable(*_: object, **__: object) -> NoReturn:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "b:1: Connection refused")

    monkeypatch.setattr(module, "find_locations", unreachable)
    refreshes.run(topics)
    (notice,) = tables.notices
    assert notice.startswith("orders: its newest records are not refreshed: BROKER_NOT_AVAILABLE")
