"""The judge is judged: each law is broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.checkers.membership_history import Lease, MembershipHistory
from lakelog.testing.simulation.checkers.observations import Fate, Transaction
from lakelog.testing.simulation.checkers.offset_history import OffsetHistory
from lakelog.testing.simulation.checkers.partition_check import check_partition, check_transactions
from lakelog.testing.simulation.checkers.record_history import RecordHistory

P = ("topic", 0)
Story = Callable[[RecordHistory], object]


def sent(
    history: RecordHistory, *values: bytes, once: bool = False, fate: Fate | None = None
) -> None:
    transaction = Transaction("t", fate) if fate is not None else None
    if transaction is not None:
        history.transactions.append(transaction)
    history.will_send(P, values, once=once, transaction=transaction)


def two_values_at_one_offset(history: RecordHistory) -> None:
    sent(history, b"a", b"b")
    history.acknowledged(P, 0, [b"a"])
    history.read(P, 0, b"b", committed=False)


def one_value_twice(history: RecordHistory) -> None:
    sent(history, b"a", once=True)
    history.acknowledged(P, 0, [b"a"])
    history.read(P, 1, b"a", committed=False)


def a_value_nobody_wrote(history: RecordHistory) -> None:
    history.read(P, 0, b"a", committed=False)


def a_loss(history: RecordHistory) -> None:
    sent(history, b"a", b"b")
    history.acknowledged(P, 0, [b"a", b"b"])
    check_partition(history, P, {0: b"a"}, committed=False)


def an_open_transaction_is_read(history: RecordHistory) -> None:
    sent(history, b"a", fate=Fate.OPEN)
    history.read(P, 0, b"a", committed=True)


def an_aborted_transaction_is_read(history: RecordHistory) -> None:
    sent(history, b"a", fate=Fate.ABORTED)
    history.read(P, 0, b"a", committed=True)


def half_a_transaction(history: RecordHistory) -> None:
    sent(history, b"a", b"b", fate=Fate.COMMITTING)
    history.acknowledged(P, 0, [b"a", b"b"])
    check_transactions(history, {b"a"}, [P])


def a_committed_transaction_is_not_there(history: RecordHistory) -> None:
    sent(history, b"a", fate=Fate.COMMITTED)
    history.acknowledged(P, 0, [b"a"])
    check_partition(history, P, {}, committed=True)


def the_newest_of_a_key_is_gone(history: RecordHistory) -> None:
    history.partition(P).compacted = True
    sent(history, b"k/1", b"k/2")
    history.acknowledged(P, 0, [b"k/1", b"k/2"])
    check_partition(history, P, {0: b"k/1"}, committed=False)


def two_owners_in_a_generation(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.assigned("g", 3, "one", [P])
    members.assigned("g", 3, "two", [P])


def two_leases(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.lease("g", Lease("one", frozenset({P}), 10.0), 1.0)
    members.lease("g", Lease("two", frozenset({P}), 12.0), 9.0)


def a_replaced_static_member_is_heard(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.holds("g", "i", "first", (1.0, 2.0), 1, written=True)
    members.holds("g", "i", "second", (3.0, 4.0), 1, written=True)
    history.findings.expect(
        Law.FENCED_INSTANCE, not members.is_fenced("first", 2), "first is heard"
    )
    history.findings.expect(
        Law.FENCED_INSTANCE, not members.is_fenced("second", 2), "second is heard"
    )


def an_offset_is_lost(history: RecordHistory) -> None:
    offsets = OffsetHistory(history.findings)
    value = offsets.will_commit("g", P)
    offsets.acknowledged("g", P, value, {})
    offsets.fetched("g", P, -1, offsets.last_done("g", P))


def an_offset_goes_back(history: RecordHistory) -> None:
    offsets = OffsetHistory(history.findings)
    first, second = offsets.will_commit("g", P), offsets.will_commit("g", P)
    offsets.acknowledged("g", P, second, {})
    offsets.fetched("g", P, first, offsets.last_done("g", P))


def an_offset_of_an_aborted_transaction(history: RecordHistory) -> None:
    offsets = OffsetHistory(history.findings)
    value = offsets.will_commit("g", P, Transaction("t", Fate.ABORTED))
    offsets.fetched("g", P, value, -1)


BROKEN: list[Story] = [
    two_values_at_one_offset,
    one_value_twice,
    a_value_nobody_wrote,
    a_loss,
    an_open_transaction_is_read,
    an_aborted_transaction_is_read,
    half_a_transaction,
    a_committed_transaction_is_not_there,
    the_newest_of_a_key_is_gone,
    two_owners_in_a_generation,
    two_leases,
    a_replaced_static_member_is_heard,
    an_offset_is_lost,
    an_offset_goes_back,
    an_offset_of_an_aborted_transaction,
]


@pytest.mark.parametrize("story", BROKEN, ids=lambda story: story.__name__)
def test_a_broken_law_is_told(story: Story) -> None:
    history = RecordHistory(Findings())
    story(history)
    assert len(history.findings.violations) == 1


def all_is_well(history: RecordHistory) -> None:
    sent(history, b"a", b"b", once=True)
    history.acknowledged(P, 0, [b"a", b"b"])
    check_partition(history, P, {0: b"a", 1: b"b"}, committed=True)


def what_was_deleted_may_be_gone(history: RecordHistory) -> None:
    sent(history, b"a", b"b")
    history.acknowledged(P, 0, [b"a", b"b"])
    history.deleted(P, 1)
    check_partition(history, P, {1: b"b"}, committed=False)


def what_went_with_the_power_may_be_gone_and_its_place_taken(history: RecordHistory) -> None:
    sent(history, b"a", b"b", b"c", once=True)
    history.acknowledged(P, 0, [b"a", b"b"])
    history.cut(P, 1)
    history.acknowledged(P, 1, [b"c"])
    check_partition(history, P, {0: b"a", 1: b"c"}, committed=False)


def a_transaction_of_unknown_end_is_there_or_not(history: RecordHistory) -> None:
    sent(history, b"a", b"b", fate=Fate.COMMITTING)
    history.acknowledged(P, 0, [b"a", b"b"])
    check_partition(history, P, {}, committed=True)
    check_transactions(history, set(), [P])
    check_transactions(history, {b"a", b"b"}, [P])


def a_lease_that_has_run_out(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.lease("g", Lease("one", frozenset({P}), 10.0), 1.0)
    members.lease("g", Lease("two", frozenset({P}), 20.0), 11.0)


def a_takeover_that_no_log_has_is_forgotten(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.holds("g", "i", "first", (1.0, 2.0), 1, written=True)
    members.holds("g", "i", "second", (3.0, 4.0), 1, written=False)
    assert members.is_fenced("first", 1)
    history.findings.expect(
        Law.FENCED_INSTANCE, not members.is_fenced("first", 2), "first is heard"
    )


def static_members_that_join_at_once_may_come_in_any_order(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.holds("g", "i", "first", (1.0, 4.0), 1, written=True)
    members.holds("g", "i", "second", (2.0, 3.0), 1, written=True)
    for member in ("first", "second"):
        history.findings.expect(
            Law.FENCED_INSTANCE, not members.is_fenced(member, 1), f"{member} is heard"
        )


def a_heartbeat_while_the_group_is_loading_is_answered_to_anybody(history: RecordHistory) -> None:
    members = MembershipHistory(history.findings)
    members.holds("g", "i", "first", (1.0, 2.0), 1, written=True)
    members.holds("g", "i", "second", (3.0, 4.0), 1, written=True)
    assert members.static_groups == {"g"}
    assert not members.was_loading("g", 0.0)
    members.loads("g", 5.0)
    assert members.was_loading("g", 5.0)
    assert not members.was_loading("g", 5.1), "asked for when it was loaded"
    assert not members.was_loading("other", 0.0)


@pytest.mark.parametrize(
    "story",
    [
        all_is_well,
        what_was_deleted_may_be_gone,
        what_went_with_the_power_may_be_gone_and_its_place_taken,
        a_transaction_of_unknown_end_is_there_or_not,
        a_lease_that_has_run_out,
        a_takeover_that_no_log_has_is_forgotten,
        static_members_that_join_at_once_may_come_in_any_order,
        a_heartbeat_while_the_group_is_loading_is_answered_to_anybody,
    ],
    ids=lambda story: story.__name__,
)
def test_what_is_allowed_is_not_told(story: Story) -> None:
    history = RecordHistory(Findings())
    story(history)
    assert history.findings.violations == []


def test_who_was_forgotten_meanwhile_may_write_again() -> None:
    history = RecordHistory(Findings())
    history.forgets = lambda place, since: since < 2.0
    history.will_send(P, [b"a"], once=True, made_at=1.0)
    for offset in (0, 1, 0):
        history.read(P, offset, b"a", committed=False)
    assert (
        history.findings.broken,
        history.findings.counts["retries of forgotten producers"],
    ) == (set(), 1)
    history.will_send(P, [b"b"], once=True, made_at=3.0)
    history.read(P, 2, b"b", committed=False)
    history.read(P, 3, b"b", committed=False)
    assert history.findings.broken == {Law.ONCE}


def test_who_is_in_a_transaction_is_never_forgotten() -> None:
    history = RecordHistory(Findings())
    history.forgets = lambda place, since: True
    sent(history, b"a", once=True, fate=Fate.COMMITTED)
    history.read(P, 0, b"a", committed=True)
    history.read(P, 1, b"a", committed=True)
    assert history.findings.broken == {Law.ONCE}
