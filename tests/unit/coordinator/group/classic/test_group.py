from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState, select_protocol
from lakelog.coordinator.group.classic.member import Member
from lakelog.protocol.groups import JoinGroupResponse


@pytest.mark.parametrize(
    ("choices", "selected"),
    [
        ([["range"]], "range"),
        ([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]], "sticky"),
        ([["range", "sticky"], ["sticky", "range"]], "range"),
        ([["range", "sticky"], ["sticky"]], "sticky"),
        ([["new", "range"], ["new", "range"], ["range"]], "range"),
        ([], None),
    ],
)
def test_the_vote(choices: list[list[str]], selected: str | None) -> None:
    assert select_protocol(choices) == selected


def _group(*members: Member) -> ClassicGroup:
    group = ClassicGroup("g")
    for member in members:
        group.add(member)
    return group


def _member(name: str, *protocols: str, instance_id: str | None = None) -> Member:
    return Member(name, instance_id, "", "", 1, 1, tuple((each, b"") for each in protocols))


class _Parked:
    """A JoinGroup that waits."""

    def answer(self, reply: JoinGroupResponse) -> None:
        raise AssertionError("the rebalance does not complete")


def test_a_leader_that_has_not_joined_is_replaced() -> None:
    leader, other = _member("a", "range"), _member("b", "range")
    group = _group(leader, other)
    assert not group.elect_leader()
    other.park_join(_Parked())
    assert group.elect_leader()
    assert group.leader_id == "b"
    leader.park_join(_Parked())
    assert group.elect_leader()
    assert group.leader_id == "b"


def test_a_generation_waits_for_the_syncs_of_its_members() -> None:
    group = _group(_member("a", "range", "sticky"), _member("b", "sticky"))
    group.state = GroupState.PREPARING_REBALANCE
    group.begin_generation(5)
    assert (group.state, group.generation) == (GroupState.COMPLETING_REBALANCE, 1)
    assert (group.protocol, group.pending_syncs) == ("sticky", {"a", "b"})
    assert group.state_timestamp_ms == 5


def test_a_generation_without_members_is_empty() -> None:
    group = _group(_member("a", "range"))
    group.state, group.protocol = GroupState.PREPARING_REBALANCE, "range"
    group.remove("a")
    group.begin_generation(5)
    assert (group.state, group.generation) == (GroupState.EMPTY, 1)
    assert group.protocol is None


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("a", "i", None),
        ("a", None, None),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "j", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_kip_345_a_request_names_the_member_that_has_its_instance_id(
    member_id: str, instance_id: str | None, code: ErrorCode | None
) -> None:
    group = _group(_member("a", "range", instance_id="i"))
    if code is None:
        assert group.validate(member_id, instance_id).member_id == "a"
        return
    with pytest.raises(KafkaError) as raised:
        group.validate(member_id, instance_id)
    assert raised.value.code == code
