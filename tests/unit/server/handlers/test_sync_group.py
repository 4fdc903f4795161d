from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import SyncGroupRequest, SyncGroupRequestAssignment
from lakelog.server.handlers import join_group
from lakelog.server.handlers.sync_group import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, join, join_request

E = ErrorCode


def request(
    member_id: str, generation: int, assignments: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in (assignments or {}).items()
        ],
    )


def test_members_get_the_assignments_of_the_leader(coordinators: MemoryBroker) -> None:
    first = join(coordinators)
    given = coordinators.ask(join_group.handle, join_request(), 9)
    joining = coordinators.start(join_group.handle, join_request(given.member_id), 9)
    leader = coordinators.ask(join_group.handle, join_request(first.member_id), 9)
    other = joining.response()
    waiting = coordinators.start(handle, request(other.member_id, other.generation_id), 5)
    assert not waiting.is_answered
    plan = {leader.member_id: b"first", other.member_id: b"second"}
    own = coordinators.ask(handle, request(leader.member_id, leader.generation_id, plan), 5)
    assert (own.assignment, waiting.response().assignment) == (b"first", b"second")


@pytest.mark.parametrize(("version", "named"), [(4, None), (5, "range")])
def test_the_protocol_is_named_from_version_5_on(
    coordinators: MemoryBroker, version: int, named: str | None
) -> None:
    joined = join(coordinators)
    asked = request(joined.member_id, joined.generation_id, {joined.member_id: b"mine"})
    response = coordinators.ask(handle, asked, version)
    assert (response.assignment, response.protocol_name) == (b"mine", named)


def test_a_stranger_and_an_old_generation_are_rejected(coordinators: MemoryBroker) -> None:
    joined = join(coordinators)
    stranger = coordinators.ask(handle, request("unknown", joined.generation_id), 5)
    assert stranger.error_code == E.UNKNOWN_MEMBER_ID
    late = coordinators.ask(handle, request(joined.member_id, joined.generation_id - 1), 5)
    assert late.error_code == E.ILLEGAL_GENERATION


def test_another_protocol_than_the_group_s_is_rejected(coordinators: MemoryBroker) -> None:
    joined = join(coordinators)
    asked = request(joined.member_id, joined.generation_id)
    asked.protocol_type, asked.protocol_name = "consumer", "sticky"
    response = coordinators.ask(handle, asked, 5)
    assert response.error_code == E.INCONSISTENT_GROUP_PROTOCOL
