from __future__ import annotations

from concurrent.futures import Future

import pytest

from lakelog.coordinator.requests import complete


def test_a_caller_is_answered_once() -> None:
    future = Future[int]()
    complete(future, 1)
    assert future.result() == 1
    with pytest.raises(AssertionError, match="answered once"):
        complete(future, 2)


def test_a_caller_that_has_gone_away_is_not_answered() -> None:
    future = Future[int]()
    future.cancel()
    complete(future, 1)
    assert future.cancelled()
