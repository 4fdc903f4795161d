"""A broker that was got a promise is fenced only when it is over."""

from __future__ import annotations

import pytest

from lakelog.server.controller.promises import Promises
from storage_kit import ManualClock

SESSION_S = 3.0
LENGTH_S = 1.1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def promises(clock: ManualClock) -> Promises:
    return Promises(SESSION_S, clock)


def test_a_dead_broker_is_fenced_when_the_promise_is_over(
    promises: Promises, clock: ManualClock
) -> None:
    assert promises.give(2)
    clock.now_ms += 1000
    due, next_s = promises.divide({2: 7, 3: 8})
    assert due == {3: 8}
    assert next_s == pytest.approx(LENGTH_S - 1.0)
    clock.now_ms += 101
    assert promises.divide({2: 7, 3: 8}) == ({2: 7, 3: 8}, None)


def test_a_broker_that_has_been_found_dead_gets_no_promise(promises: Promises) -> None:
    """Otherwise a broker that only its store cannot reach would never be fenced."""
    assert promises.give(2)
    promises.divide({2: 7})
    assert not promises.give(2)
    assert promises.give(3)
    promises.divide({})
    assert promises.give(2)


def test_an_ended_process_needs_no_promise(promises: Promises) -> None:
    promises.give(2)
    assert promises.release(2)
    assert not promises.release(2)
    assert promises.divide({2: 7}) == ({2: 7}, None)
