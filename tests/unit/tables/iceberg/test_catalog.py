"""Opening a catalog whose tables another process creates at the same time."""

from __future__ import annotations

import time
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


def test_a_catalog_is_opened_once_for_the_same_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = Loading(monkeypatch, 0)
    for _ in range(2):
        catalog.open_catalog({"uri": "sqlite:///a", "warehouse": "b"})
        catalog.open_catalog({"warehouse": "b", "uri": "sqlite:///a"})
    assert loading.attempts == 1
