from __future__ import annotations

from concurrent.futures import Future

import pytest

from lakelog.coordinator.requests import settle


def test_a_caller_is_answered_once() -> None:
    future = Future[int]()
    settle(future, 1)
    assert future.result() == 1
    with pytest.raises(AssertionError, match="answered once"):
        settle(future, 2)


def test_a_caller_that_has_gone_away_is_not_answered() -> None:
    future = Future[int]()
    future.cancel()
    settle(future, 1)
    assert future.cancelled()
