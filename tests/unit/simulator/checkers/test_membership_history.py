"""The history of members: owners of partitions, and holders of instance ids."""

from __future__ import annotations

import pytest

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.membership_history import Lease, MembershipHistory

PLACE = ("topic", 0)


@pytest.fixture
def findings() -> Findings:
    return Findings()


@pytest.fixture
def members(findings: Findings) -> MembershipHistory:
    return MembershipHistory(findings)


def test_two_owners_in_a_generation(members: MembershipHistory, findings: Findings) -> None:
    members.assigned("g", 3, "one", [PLACE])
    members.assigned("g", 4, "two", [PLACE])
    assert findings.violations == []
    assert members.generation("g") == 4
    members.assigned("g", 3, "two", [PLACE])
    assert findings.broken == {Law.GENERATION_OWNER}


@pytest.mark.parametrize(("now", "breaks"), [(9.0, True), (11.0, False)])
def test_leases_do_not_overlap_until_they_expire(
    members: MembershipHistory, findings: Findings, now: float, breaks: bool
) -> None:
    members.lease("g", Lease("one", frozenset({PLACE}), 10.0), 1.0)
    members.lease("g", Lease("two", frozenset({PLACE}), 20.0), now)
    assert findings.broken == ({Law.ONE_OWNER} if breaks else set())


def test_a_member_that_left_has_no_lease(members: MembershipHistory, findings: Findings) -> None:
    members.lease("g", Lease("one", frozenset({PLACE}), 10.0), 1.0)
    members.give_up("g", "one")
    members.lease("g", Lease("two", frozenset({PLACE}), 20.0), 2.0)
    assert findings.violations == []


def hold(members: MembershipHistory, member: str, *times: float, written: bool = True) -> None:
    members.holds("g", "i", member, (times[0], times[1]), 1, written=written)


def test_a_later_holder_replaces_an_earlier_one(members: MembershipHistory) -> None:
    hold(members, "first", 1.0, 2.0)
    hold(members, "second", 3.0, 4.0)
    assert members.is_fenced("first", 2)
    assert not members.is_fenced("second", 2)


def test_a_takeover_that_is_not_in_the_log_ends_with_the_next_start(
    members: MembershipHistory,
) -> None:
    hold(members, "first", 1.0, 2.0)
    hold(members, "second", 3.0, 4.0, written=False)
    assert members.is_fenced("first", 1)
    assert not members.is_fenced("first", 2)


def test_concurrent_requests_may_be_handled_in_any_order(members: MembershipHistory) -> None:
    hold(members, "first", 1.0, 4.0)
    hold(members, "second", 2.0, 3.0)
    assert not members.is_fenced("first", 1)
    assert not members.is_fenced("second", 1)


def test_a_fenced_member_stays_fenced_until_a_start(members: MembershipHistory) -> None:
    members.fenced("g", "i", "first", 3)
    assert members.is_fenced("first", 3)
    assert not members.is_fenced("first", 4)


def test_a_loading_coordinator_accepts_any_heartbeat(members: MembershipHistory) -> None:
    hold(members, "first", 1.0, 2.0)
    assert members.static_groups == {"g"}
    assert not members.was_loading("g", 0.0)
    members.loads("g", 5.0)
    assert members.was_loading("g", 5.0)
    assert not members.was_loading("g", 5.1), "the request was sent after loading"
    assert not members.was_loading("other", 0.0)


def test_a_cut_log_of_groups_forgets_all(members: MembershipHistory) -> None:
    members.assigned("g", 3, "one", [PLACE])
    hold(members, "first", 1.0, 2.0)
    hold(members, "second", 3.0, 4.0)
    members.cut(("orders", 0))
    assert members.generation("g") == 3
    members.cut(("__consumer_offsets", 1))
    assert members.generation("g") == 0
    assert not members.is_fenced("first", 1)
