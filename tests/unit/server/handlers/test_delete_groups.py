from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import DeleteGroupsRequest
from lakelog.server.handlers.delete_groups import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, commit, join_and_sync

E = ErrorCode


def codes(world: MemoryBroker, *groups: str) -> dict[str, int]:
    response = world.ask(handle, DeleteGroupsRequest(groups_names=list(groups)), 2)
    return {each.group_id: each.error_code for each in response.results}


def test_only_groups_without_members_are_deleted(coordinators: MemoryBroker) -> None:
    join_and_sync(coordinators)
    commit(coordinators, 5, "empty")
    wanted = (GROUP, "empty", "missing")
    assert codes(coordinators, *wanted) == {
        GROUP: E.NON_EMPTY_GROUP,
        "empty": E.NONE,
        "missing": E.GROUP_ID_NOT_FOUND,
    }
    assert codes(coordinators, "empty") == {"empty": E.GROUP_ID_NOT_FOUND}


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert codes(world, GROUP) == {GROUP: E.NOT_COORDINATOR}
