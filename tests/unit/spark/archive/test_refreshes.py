from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NoReturn

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.spark.archive import refreshes as module
from lakelog.spark.archive.refreshes import Refreshes
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.latest.progress import LatestTableError
from unit.spark.archive.test_upkeep import NoClient
from unit.tables.latest.kit import Put, Tables


@pytest.fixture
def tables(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """The tables of the topic `orders`; the topic `plain` has an archive only."""
    made = Tables(address)

    def found_places(_: object, topics: Iterable[str], **__: object) -> dict[str, None]:
        return dict.fromkeys(topics)

    def opened(_: object, topics: Iterable[str]) -> dict[str, TopicArchive]:
        return {topic: made.version() for topic in topics if topic != "unknown"}

    monkeypatch.setattr(module, "TopicClient", NoClient)
    monkeypatch.setattr(module, "find_places", found_places)
    monkeypatch.setattr(module, "open_places", opened)
    found = {"orders": made.place}
    monkeypatch.setattr(module, "find_latest", lambda _, topic, __: found.get(topic))
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
    errors = iter([LatestTableError("x"), LatestTableError("x"), KeyError("y")])

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

    monkeypatch.setattr(module, "find_places", unreachable)
    refreshes.run(topics)
    (notice,) = tables.notices
    assert notice.startswith("orders: its newest records are not refreshed: BROKER_NOT_AVAILABLE")
