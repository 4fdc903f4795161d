from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import DescribedGroup, DescribeGroupsRequest
from lakelog.server.handlers.describe_groups import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, join_and_sync

E = ErrorCode


def ask(
    world: MemoryBroker, *groups: str, version: int = 6, operations: bool = False
) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    return world.ask(handle, request, version).groups


def test_a_group_has_its_members_and_their_assignments(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    (group,) = ask(coordinators, GROUP)
    assert (group.error_code, group.group_state, group.protocol_data) == (E.NONE, "Stable", "range")
    (member,) = group.members
    assert (member.member_id, member.member_assignment) == (joined.member_id, b"mine")


@pytest.mark.parametrize(("version", "code"), [(5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)])
def test_a_missing_group_is_dead_and_from_version_6_on_an_error(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    (group,) = ask(coordinators, "missing", version=version)
    assert (group.error_code, group.group_state) == (code, "Dead")


@pytest.mark.parametrize("wanted", [False, True])
def test_operations_are_set_on_request_and_for_existing_groups(
    coordinators: MemoryBroker, wanted: bool
) -> None:
    join_and_sync(coordinators)
    found, missing = ask(coordinators, GROUP, "missing", operations=wanted)
    assert (found.authorized_operations > 0) is wanted
    assert missing.authorized_operations < 0
