from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import DescribeGroupsRequest
from lakelog.server.handlers import describe_groups
from lakelog.server.handlers.join_group import handle
from memory_broker import CLIENT_ID, PEER, MemoryBroker
from memory_clients import GROUP, join, join_and_sync, join_request

E = ErrorCode


def test_before_version_4_a_client_joins_without_a_member_id(coordinators: MemoryBroker) -> None:
    """KIP-394 keeps clients that never return from being members."""
    assert coordinators.ask(handle, join_request(group="old"), 3).error_code == E.NONE
    required = coordinators.ask(handle, join_request(group="new"), 4)
    assert (required.error_code, required.members) == (E.MEMBER_ID_REQUIRED, [])
    again = coordinators.ask(handle, join_request(required.member_id, "new"), 4)
    assert (again.error_code, again.leader) == (E.NONE, required.member_id)


def test_the_coordinator_knows_the_name_and_the_host_of_the_client(
    coordinators: MemoryBroker,
) -> None:
    joined = join_and_sync(coordinators)
    assert joined.member_id.startswith(CLIENT_ID)
    request = DescribeGroupsRequest(groups=[GROUP])
    (group,) = coordinators.ask(describe_groups.handle, request, 6).groups
    (member,) = group.members
    assert (member.client_id, member.client_host) == (CLIENT_ID, f"/{PEER[0]}")


def test_a_second_member_waits_for_the_first(coordinators: MemoryBroker) -> None:
    first = join_and_sync(coordinators)
    given = coordinators.ask(handle, join_request(), 9)
    waiting = coordinators.start(handle, join_request(given.member_id), 9)
    coordinators.pass_time(1)
    assert not waiting.is_answered
    again = coordinators.ask(handle, join_request(first.member_id), 9)
    assert {again.generation_id, waiting.response().generation_id} == {first.generation_id + 1}
    assert len(again.members) == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, E.INVALID_SESSION_TIMEOUT),
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_bad_request_is_an_error(
    coordinators: MemoryBroker, change: dict[str, object], code: ErrorCode
) -> None:
    join(coordinators)
    request = join_request()
    for name, value in change.items():
        setattr(request, name, value)
    response = coordinators.ask(handle, request, 9)
    assert (response.error_code, response.generation_id) == (code, -1)


def test_before_the_groups_are_loaded_no_group_has_a_coordinator(world: MemoryBroker) -> None:
    response = world.ask(handle, join_request(), 9)
    assert response.error_code == E.NOT_COORDINATOR
