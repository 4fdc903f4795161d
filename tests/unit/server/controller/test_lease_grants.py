"""A broker that was got a promise is fenced only when it is over."""

from __future__ import annotations

import pytest

from lakelog.server.controller.lease_grants import LeaseGrants
from storage_kit import ManualClock

SESSION_S = 3.0
LENGTH_S = 1.1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lease_grants(clock: ManualClock) -> LeaseGrants:
    return LeaseGrants(SESSION_S, clock)


def test_a_dead_broker_is_fenced_when_the_lease_grant_is_over(
    lease_grants: LeaseGrants, clock: ManualClock
) -> None:
    assert lease_grants.give(2)
    clock.now_ms += 1000
    due, next_s = lease_grants.divide({2: 7, 3: 8})
    assert due == {3: 8}
    assert next_s == pytest.approx(LENGTH_S - 1.0)
    clock.now_ms += 101
    assert lease_grants.divide({2: 7, 3: 8}) == ({2: 7, 3: 8}, None)


def test_a_broker_that_has_been_found_dead_gets_no_lease_grant(lease_grants: LeaseGrants) -> None:
    """Otherwise a broker that only its store cannot reach would never be fenced."""
    assert lease_grants.give(2)
    lease_grants.divide({2: 7})
    assert not lease_grants.give(2)
    assert lease_grants.give(3)
    lease_grants.divide({})
    assert lease_grants.give(2)


def test_an_ended_process_needs_no_lease_grant(lease_grants: LeaseGrants) -> None:
    lease_grants.give(2)
    assert lease_grants.release(2)
    assert not lease_grants.release(2)
    assert lease_grants.divide({2: 7}) == ({2: 7}, None)
