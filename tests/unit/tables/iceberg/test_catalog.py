"""Opening a catalog whose tables another process creates at the same time."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from lakelog.tables.iceberg import catalog

OPENED = object()


class Loading:
    """Replaces `load_catalog`: fails a number of times. Pauses are noted, and not made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self.attempts = 0
        self.pauses_s: list[float] = []
        self._failures = failures
        monkeypatch.setattr(catalog, "load_catalog", self._load)
        monkeypatch.setattr(time, "sleep", self.pauses_s.append)
        catalog._open_catalog.cache_clear()

    def _load(self, name: str, **properties: str) -> Any:
        self.attempts += 1
        if self.attempts <= self._failures:
            raise OperationalError("CREATE TABLE", None, Exception("table exists"))
        return OPENED


@pytest.mark.parametrize("failures", [0, 1, 5])
def test_a_catalog_that_another_process_creates_is_opened(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    loading = Loading(monkeypatch, failures)
    assert catalog.open_catalog({"uri": f"sqlite:///{failures}"}) is OPENED
    assert loading.attempts == failures + 1
    assert len(loading.pauses_s) == failures
    for number, pause_s in enumerate(loading.pauses_s):
        assert 0 <= pause_s <= 0.02 * 2**number


def test_a_catalog_that_cannot_be_opened_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = Loading(monkeypatch, 100)
    with pytest.raises(SQLAlchemyError):
        catalog.open_catalog({"uri": "sqlite:///never"})
    assert loading.attempts == 6
    assert sum(loading.pauses_s) < 1.0


def test_a_locked_catalog_is_named_and_usable_afterwards(tmp_path: Path) -> None:
    """A statement waits for the lock first, 5 s by default; the error has no SQL."""
    file = tmp_path / "catalog.db"
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{file}?timeout=0.05",
        "warehouse": f"{tmp_path}",
    }
    opened = catalog.open_catalog(properties)
    opened.create_namespace("n")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for statement in (opened.list_namespaces, partial(opened.create_namespace, "m")):
        with pytest.raises(catalog.CatalogLockedError) as caught:
            statement()
        assert str(caught.value) == (
            f"another process has locked the catalog {file}: end it, or wait until it has finished"
        )
    catalog._open_catalog.cache_clear()
    with pytest.raises(catalog.CatalogLockedError):
        catalog.open_catalog(properties)
    other.execute("ROLLBACK")
    other.close()
    assert (
        opened.list_namespaces() == catalog.open_catalog(properties).list_namespaces() == [("n",)]
    )


def test_a_catalog_is_opened_once_for_the_same_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = Loading(monkeypatch, 0)
    for _ in range(2):
        catalog.open_catalog({"uri": "sqlite:///a", "warehouse": "b"})
        catalog.open_catalog({"warehouse": "b", "uri": "sqlite:///a"})
    assert loading.attempts == 1
