"""Members of consumer groups: their records, epochs and partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.coordinator.group.consumer.member import (
    ClassicSide,
    ConsumerMember,
    MemberState,
    stored_target,
    target_bytes,
)
from lakelog.coordinator.group.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)

A, B = b"a" * 16, b"b" * 16
MEMBER = ConsumerMember(
    "m",
    member_epoch=7,
    previous_epoch=6,
    state=MemberState.UNREVOKED_PARTITIONS,
    instance_id="i",
    rack_id="r",
    client_id="app",
    client_host="/127.0.0.1",
    topics=frozenset({"orders", "clicks"}),
    regex="or.*",
    rebalance_timeout_ms=30_000,
    assignor="range",
    assigned={A: {0: 5, 1: 7}},
    pending={B: {3: 4}},
    classic=ClassicSide(10_000, (("range", b"meta"), ("sticky", b"more"))),
)


def test_its_records_restore_a_member() -> None:
    restored = ConsumerMember("m").with_metadata(MEMBER.metadata_value())
    assert restored.with_assignment(MEMBER.assignment_value()) == MEMBER


def test_a_state_of_a_newer_version_is_unknown() -> None:
    """The member rejoins instead of making the partition fail to load."""
    assert MemberState.of(99) is MemberState.UNKNOWN
    assert MemberState.of(2) is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("epochs", [None, [5]])
def test_partitions_without_epochs_have_that_of_the_member(epochs: list[int] | None) -> None:
    """Brokers before KIP-1251 write none."""
    stored = TopicPartitions(topic_id=A, partitions=[0, 1], assignment_epochs=epochs)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        state=1,
        assigned_partitions=[stored],
        partitions_pending_revocation=[],
    )
    assert ConsumerMember("m").with_assignment(value).assigned == {A: {0: 7, 1: 7}}


def test_classic_metadata_without_protocols_is_a_member_of_the_consumer_protocol() -> None:
    value = MEMBER.metadata_value()
    value.classic_member_metadata = ClassicMemberMetadata(
        session_timeout_ms=1, supported_protocols=[]
    )
    assert ConsumerMember("m").with_metadata(value).classic is None


def test_partitions_to_revoke_are_held_until_they_are_revoked() -> None:
    assert sorted(MEMBER.held()) == [(A, 0), (A, 1), (B, 3)]
    assert MEMBER.held_since(A, 0) == 5
    assert MEMBER.held_since(B, 3) == 4
    assert MEMBER.held_since(B, 0) is None


def test_a_static_member_that_is_away_keeps_its_partitions_but_not_their_epochs() -> None:
    """A commit of its earlier process cannot be validated by epoch."""
    away = MEMBER.away()
    assert away.member_epoch == -2
    assert (away.assigned, away.pending) == ({A: {0: 0, 1: 0}}, {})
    assert away.instance_id == "i"


def test_a_member_whose_assignment_is_deleted_holds_nothing() -> None:
    gone = MEMBER.gone()
    assert (gone.member_epoch, list(gone.held())) == (-1, [])
    assert gone.has_subscription_of(MEMBER)


def test_a_new_process_of_a_static_member_joins_with_the_same_partitions() -> None:
    renamed = MEMBER.renamed("n")
    assert (renamed.member_id, renamed.member_epoch) == ("n", 0)
    assert sorted(renamed.held()) == sorted(MEMBER.held())


def test_only_a_stable_member_in_the_epoch_is_reconciled() -> None:
    stable = replace(MEMBER, state=MemberState.STABLE)
    assert stable.is_reconciled(7)
    assert not stable.is_reconciled(8)
    assert not MEMBER.is_reconciled(7)


def test_a_subscription_does_not_include_the_address() -> None:
    """A client that reconnects from another port starts no rebalance."""
    moved = replace(MEMBER, client_host="/127.0.0.2", client_id="other", member_epoch=9)
    assert moved.has_subscription_of(MEMBER)
    for change in ({"topics": frozenset({"x"})}, {"regex": ""}, {"rack_id": None}):
        assert not replace(MEMBER, **change).has_subscription_of(MEMBER)


def test_memory_and_subscription_rise_with_topics_and_partitions() -> None:
    more = replace(MEMBER, topics=MEMBER.topics | {"x" * 100})
    assert more.memory - MEMBER.memory >= 100
    assert more.subscription_bytes - MEMBER.subscription_bytes >= 100
    held = replace(MEMBER, assigned={A: dict.fromkeys(range(1000), 7)})
    assert held.memory - MEMBER.memory > 100_000
    assert held.subscription_bytes == MEMBER.subscription_bytes


def test_targets_are_stored_in_order() -> None:
    """Equal targets have equal records."""
    target = {B: frozenset({2, 0}), A: frozenset({9, 1})}
    stored = [(each.topic_id, each.partitions) for each in stored_target(target)]
    assert stored == [(A, [1, 9]), (B, [0, 2])]
    assert target_bytes(None) == 0 < target_bytes({A: frozenset()}) < target_bytes(target)
