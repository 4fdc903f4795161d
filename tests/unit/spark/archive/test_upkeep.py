from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import pytest

from lakelog.spark.archive import upkeep as module
from lakelog.spark.archive.upkeep import Upkeep
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.exchange import UnknownOutcomeError
from lakelog.tables.joined.archives import TopicArchive
from lakelog.tables.topic.errors import ArchiveUnreadableError
from unit.tables.archive_table import offsets, write_batch
from unit.tables.joined.kit import archive_of


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
    monkeypatch.setattr(module, "own_latest", lambda *_: None)
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
