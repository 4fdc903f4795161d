"""Clients of planners, and of the tasks of one worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from lakelog.spark.source import clients
from lakelog.spark.source.clients import open_planner, planned, reading_client
from lakelog.spark.source.options import SourceOptions, parse_source_options
from lakelog.tables.hybrid.archives import PlannedRange
from lakelog.tables.hybrid.client import HybridClient
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import OffsetRange


def options(**given: str) -> SourceOptions:
    fixed = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
    return parse_source_options({**fixed, **given}, streaming=False)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TopicClient]]:
    """In a worker: the clients that were closed."""
    found: list[TopicClient] = []
    monkeypatch.setattr(clients, "is_worker", lambda: True)
    monkeypatch.setattr(TopicClient, "close", lambda client: found.append(client))
    yield found
    clients._kept.clear()


def test_tables_are_read_unless_an_option_excludes_them() -> None:
    with open_planner(options()) as client:
        assert isinstance(client, HybridClient)
    with open_planner(options(archive="none")) as client:
        assert not isinstance(client, HybridClient)


def test_a_worker_keeps_its_client_for_the_next_task(closed: list[TopicClient]) -> None:
    with reading_client(options()) as first:
        pass
    # Other positions of the same cluster, as in the next batch.
    with reading_client(options(startingOffsets="latest")) as second:
        pass
    assert second is first
    assert not closed


def test_a_worker_keeps_one_client_at_most(closed: list[TopicClient]) -> None:
    with reading_client(options()) as outer, reading_client(options()) as inner:
        assert inner is not outer
    assert closed == [inner]

    with reading_client(options(**{"kafka.isolation.level": "read_uncommitted"})) as other:
        assert other is not outer
    assert closed == [inner, outer]


def test_a_client_is_closed_after_an_error_and_after_an_unfinished_read(
    closed: list[TopicClient],
) -> None:
    found: list[TopicClient] = []

    def read() -> Iterator[int]:
        with reading_client(options()) as client:
            found.append(client)
            yield 1
            raise ConnectionError

    rows = read()
    next(rows)
    with pytest.raises(ConnectionError):
        next(rows)
    unfinished = read()
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert closed == found
    assert len(found) == 2


def test_other_processes_keep_no_client(
    closed: list[TopicClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "is_worker", lambda: False)
    with reading_client(options()) as client:
        pass
    assert closed == [client]


def test_a_client_without_tables_leaves_ranges_as_they_are() -> None:
    log = cast("TopicClient", None)
    assert planned(log, [OffsetRange("t", 0, 0, 5)]) == [PlannedRange(OffsetRange("t", 0, 0, 5))]
