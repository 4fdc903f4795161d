from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import LeaveGroupRequest, MemberIdentity
from lakelog.server.handlers.leave_group import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, join_and_sync

E = ErrorCode


def test_before_version_3_one_member_leaves(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    request = LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)
    assert coordinators.ask(handle, request, 2).error_code == E.NONE
    assert coordinators.ask(handle, request, 2).error_code == E.UNKNOWN_MEMBER_ID


def test_each_of_several_members_has_its_result(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    members = [
        MemberIdentity(member_id=joined.member_id),
        MemberIdentity(member_id="unknown"),
        MemberIdentity(member_id="", group_instance_id="no such instance"),
    ]
    response = coordinators.ask(handle, LeaveGroupRequest(group_id=GROUP, members=members), 5)
    assert response.error_code == E.NONE
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (joined.member_id, E.NONE),
        ("unknown", E.UNKNOWN_MEMBER_ID),
        ("", E.UNKNOWN_MEMBER_ID),
    ]


def test_the_error_of_a_group_is_of_the_whole_request(world: MemoryBroker) -> None:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])
    response = world.ask(handle, request, 5)
    assert (response.error_code, response.members) == (E.NOT_COORDINATOR, [])
