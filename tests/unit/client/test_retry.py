from __future__ import annotations

import logging
from itertools import islice

import pytest

from lakelog.client import retry
from lakelog.client.errors import UnreachableError


def test_pauses_double_up_to_a_second_and_never_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_S", 0.05)
    assert list(islice(retry.pauses(), 7)) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert retry.pause_s(10_000) == 1.0


def test_a_retry_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        retry.log_retry(UnreachableError("h:9092: connection refused"), 0.2)
    assert "Retrying in 0.20 s" in caplog.text
    assert "connection refused" in caplog.text
